package checks

import (
	"fmt"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func serviceChecks() []Check {
	return []Check{
		{
			ID: "SV-01", Title: "Services have ready endpoints", Category: Services, Severity: High,
			Reads:     workloadReads(snapshot.Services, snapshot.EndpointSlices, snapshot.Pods),
			Threshold: "no ready endpoint, 30 s after creation", Source: "popeye (1100, 1105)",
			Remedy: "Compare the service's selector with the pods' labels; look at the pods' readiness.",
			eval:   serviceEndpoints,
		},
		{
			ID: "SV-02", Title: "No service sends traffic to lost nodes", Category: Services, Severity: High,
			Reads:     []snapshot.Resource{snapshot.EndpointSlices, snapshot.Nodes},
			Threshold: "a ready endpoint on a node that is missing, or not Ready for more than 5 min", Source: "fleetwatch",
			Remedy: "The endpoints controller is behind: look at the controller manager (CP-07, CP-08).",
			eval:   staleEndpoints,
		},
		{
			ID: "SV-03", Title: "Load balancers have an address", Category: Services, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Services},
			Threshold: "pending for more than 5 min", Source: "popeye",
			Remedy: "Look at the service's events and at the cloud's quota of load balancers and addresses.",
			eval:   loadBalancers,
		},
		{
			ID: "CF-07", Title: "Cluster DNS survives the loss of a node", Category: Services, Severity: High,
			Reads:     workloadReads(snapshot.Pods, snapshot.Nodes),
			Threshold: "fewer than 2 ready replicas, or all on one node", Source: "ACK",
			Remedy: "Run at least two CoreDNS replicas with anti-affinity, and a disruption budget.",
			eval:   clusterDNS,
		},
	}
}

func serviceEndpoints(in *input) outcome {
	var r report
	seen := 0
	now := in.now(snapshot.Services)
	for i := range in.Services {
		service := &in.Services[i]
		if service.Type == "ExternalName" || len(service.Selector) == 0 {
			continue // someone else looks after its endpoints, or it has none
		}
		seen++
		if in.readyEndpoints(service.Namespace+"/"+service.Name) > 0 || now.Sub(service.Created) < 30*time.Second {
			continue
		}
		if why, bad := in.whyNoEndpoints(service, now); bad {
			r.add(High, object("Service", service.Meta), "0 ready endpoints", "1", "%s", why)
		}
	}
	if seen == 0 {
		return notApplicable("no service selects pods")
	}
	return r.outcome("%d services with a selector", seen)
}

// whyNoEndpoints explains a service without ready endpoints; bad is false
// when that is as it should be: scaled to zero, or just starting.
func (in *input) whyNoEndpoints(service *snapshot.Service, now time.Time) (why string, bad bool) {
	var live, young, batch int
	for _, pod := range in.podsWith(service.Namespace, service.Selector) {
		if pod.Owner != nil && pod.Owner.Kind == "Job" {
			batch++
			continue
		}
		if finished(pod) || pod.Deleted != nil {
			continue
		}
		live++
		crashed := false
		for _, c := range pod.Containers {
			crashed = crashed || c.Restarts > 0
		}
		if !crashed && now.Sub(pod.Created) < 5*time.Minute {
			young++
		}
	}
	if live > 0 {
		return fmt.Sprintf("its selector matches %s, none of them ready", plural(int64(live), "pod")), young < live
	}
	if batch > 0 {
		return "", false // it belongs to a job that is not running now
	}
	var zero, wanted *snapshot.Workload
	for i := range in.Workloads {
		w := &in.Workloads[i]
		if w.Namespace != service.Namespace || !subset(service.Selector, w.TemplateLabels) {
			continue
		}
		if w.Desired == 0 {
			zero = w
		} else {
			wanted = w
		}
	}
	switch {
	case wanted != nil:
		return fmt.Sprintf("%s wants %s and has no pod", workloadObject(wanted).Path(), plural(int64(wanted.Desired), "replica")),
			now.Sub(wanted.Created) > time.Minute
	case zero != nil:
		return "", false
	default:
		return "its selector matches no pod and no workload of the namespace", true
	}
}

func staleEndpoints(in *input) outcome {
	const limit = 5 * time.Minute
	var r report
	seen := 0
	now := in.now(snapshot.EndpointSlices)
	for i := range in.EndpointSlices {
		slice := &in.EndpointSlices[i]
		lost := map[string]int{}
		for _, endpoint := range slice.Endpoints {
			if !endpoint.Ready || endpoint.Node == "" {
				continue
			}
			seen++
			if in.lostNode(endpoint.Node, now, limit) {
				lost[endpoint.Node]++
			}
		}
		for node, count := range lost {
			r.add(High, object("EndpointSlice", slice.Meta), plural(int64(count), "ready endpoint"), "none on lost nodes",
				"service %s sends traffic to node %s, which is lost", slice.Service, node)
		}
	}
	if seen == 0 {
		return notApplicable("no endpoint names a node")
	}
	return r.outcome("%d ready endpoints", seen)
}

// lostNode is true for a node that does not exist, or is not ready for long.
func (in *input) lostNode(name string, now time.Time, limit time.Duration) bool {
	node := in.nodes[name]
	if node == nil {
		return true
	}
	c := find(node.Conditions, "Ready")
	return c != nil && c.Status != "True" && now.Sub(c.Changed) > limit
}

func loadBalancers(in *input) outcome {
	const limit = 5 * time.Minute
	var r report
	seen := 0
	now := in.now(snapshot.Services)
	for i := range in.Services {
		service := &in.Services[i]
		if service.Type != "LoadBalancer" {
			continue
		}
		seen++
		if service.LoadBalancer == 0 && now.Sub(service.Created) > limit {
			r.add(High, object("Service", service.Meta), "no address for "+age(now.Sub(service.Created)), "5 min", "the load balancer is pending")
		}
	}
	if seen == 0 {
		return notApplicable("no service asks for a load balancer")
	}
	return r.outcome("%d load balancers", seen)
}

func clusterDNS(in *input) outcome {
	var r report
	seen := 0
	for i := range in.Workloads {
		w := &in.Workloads[i]
		if w.Namespace != kubeSystem || w.TemplateLabels["k8s-app"] != "kube-dns" || w.Kind == snapshot.KindDaemonSet {
			continue
		}
		seen++
		if w.Ready < 2 {
			r.add(High, workloadObject(w), plural(int64(w.Ready), "ready replica"), "2", "cluster DNS has no spare replica")
			continue
		}
		if node, alone := in.onOneNode(w); alone && len(in.Nodes) > 1 {
			r.add(High, workloadObject(w), "1 node", "2", "every DNS replica runs on node %s", node)
		}
	}
	if seen == 0 {
		return notApplicable("no DNS deployment (k8s-app=kube-dns) is visible in kube-system")
	}
	return r.outcome("%d DNS workloads", seen)
}
