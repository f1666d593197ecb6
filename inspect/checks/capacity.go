package checks

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

const zoneLabel = "topology.kubernetes.io/zone"

func capacityChecks() []Check {
	both := []snapshot.Resource{snapshot.Nodes, snapshot.Pods}
	return []Check{
		{
			ID: "CA-01", Title: "The cluster survives the loss of one node", Category: Capacity, Severity: High, Reads: both,
			Threshold: "CPU or memory requests exceed what remains without one node", Source: "kubernetes-mixin (KubeCPUOvercommit)",
			Remedy: "Add a node of the largest size, or lower requests that are not used.",
			eval:   spareNode,
		},
		{
			ID: "CA-02", Title: "The cluster survives the loss of one zone", Category: Capacity, Severity: High, Reads: both,
			Threshold: "CPU or memory requests exceed what remains without one zone", Source: "kube-jarvis",
			Remedy: "Add nodes until any one zone can be lost, or accept the risk with a waiver.",
			eval:   spareZone,
		},
		{
			ID: "CA-05", Title: "Nodes have pod addresses left", Category: Capacity, Severity: Critical, Reads: both,
			Threshold: "over 80 % of a node's pod CIDR high, 95 % critical", Source: "kube-jarvis, ACK",
			Remedy: "Add nodes, or give nodes larger pod CIDRs.",
			eval:   podAddresses,
		},
		{
			ID: "CA-06", Title: "Quotas leave room", Category: Capacity, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Quotas},
			Threshold: "over 90 % used low, 100 % high", Source: "kubernetes-mixin (KubeQuotaAlmostFull)",
			Remedy: "Raise the quota before the event: a full one blocks every new pod of the namespace.",
			eval:   quotas,
		},
		{
			ID: "CA-08", Title: "The cluster is within the size Kubernetes is tested for", Category: Capacity, Severity: Medium, Reads: both,
			Threshold: "80 % of 5,000 nodes, 150,000 pods or 300,000 containers", Source: "Kubernetes documentation (large clusters)",
			Remedy: "Plan a second cluster before growing further.",
			eval:   envelope,
		},
	}
}

// pool is the part of a cluster that any ordinary pod can use: nodes that are
// ready, schedulable and not reserved by a taint.
type pool struct {
	nodes   []*snapshot.Node
	pods    map[string][]*snapshot.Pod // by node
	waiting snapshot.Resources         // of pods without a node
	total   snapshot.Resources         // allocatable
	wanted  snapshot.Resources         // requests, those without a node included
}

func (in *input) pool() pool {
	p := pool{pods: map[string][]*snapshot.Pod{}}
	open := map[string]bool{}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if node.Unschedulable || !isTrue(node.Conditions, "Ready") || slices.ContainsFunc(node.Taints, func(t snapshot.Taint) bool {
			return t.Effect == "NoSchedule" || t.Effect == "NoExecute"
		}) {
			continue
		}
		open[node.Name] = true
		p.nodes = append(p.nodes, node)
		p.total = plus(p.total, node.Allocatable)
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		switch {
		case finished(pod):
		case pod.Node == "":
			p.waiting = plus(p.waiting, pod.Requests)
		case open[pod.Node]:
			p.pods[pod.Node] = append(p.pods[pod.Node], pod)
			p.wanted = plus(p.wanted, pod.Requests)
		}
	}
	p.wanted = plus(p.wanted, p.waiting)
	return p
}

func plus(a, b snapshot.Resources) snapshot.Resources {
	return snapshot.Resources{CPUMilli: a.CPUMilli + b.CPUMilli, Memory: a.Memory + b.Memory}
}

// without says what is wanted and what remains when the given nodes are lost.
// The pods of DaemonSets and static pods go with their node.
func (p *pool) without(lost []*snapshot.Node) (wanted, remains snapshot.Resources) {
	wanted, remains = p.wanted, p.total
	for _, node := range lost {
		remains.CPUMilli -= node.Allocatable.CPUMilli
		remains.Memory -= node.Allocatable.Memory
		for _, pod := range p.pods[node.Name] {
			if pod.Static || pod.Owner != nil && (pod.Owner.Kind == snapshot.KindDaemonSet || pod.Owner.Kind == "Node") {
				wanted.CPUMilli -= pod.Requests.CPUMilli
				wanted.Memory -= pod.Requests.Memory
			}
		}
	}
	return wanted, remains
}

// judgeLoss adds a finding for each resource that no longer fits.
func judgeLoss(r *report, target Object, what string, wanted, remains snapshot.Resources) {
	if wanted.CPUMilli > remains.CPUMilli {
		r.add(High, target, fmt.Sprintf("%.1f cores wanted", float64(wanted.CPUMilli)/1000), fmt.Sprintf("%.1f cores remain", float64(remains.CPUMilli)/1000),
			"without this %s the CPU requests do not fit", what)
	}
	if wanted.Memory > remains.Memory {
		r.add(High, target, bytes(float64(wanted.Memory))+" wanted", bytes(float64(remains.Memory))+" remain",
			"without this %s the memory requests do not fit", what)
	}
}

func spareNode(in *input) outcome {
	p := in.pool()
	if len(p.nodes) < 2 {
		return notApplicable("the pool of ready nodes without taints has %s: there is nothing to fail over to", plural(int64(len(p.nodes)), "node"))
	}
	var r report
	for _, node := range p.nodes {
		wanted, remains := p.without([]*snapshot.Node{node})
		judgeLoss(&r, nodeObject(node.Name), "node", wanted, remains)
	}
	return r.outcome("%d nodes in the pool, %s of CPU and %s of memory requested", len(p.nodes),
		percent(float64(p.wanted.CPUMilli), float64(max(1, p.total.CPUMilli))), percent(float64(p.wanted.Memory), float64(max(1, p.total.Memory))))
}

func spareZone(in *input) outcome {
	p := in.pool()
	zones := map[string][]*snapshot.Node{}
	for _, node := range p.nodes {
		if zone := node.Labels[zoneLabel]; zone != "" {
			zones[zone] = append(zones[zone], node)
		}
	}
	if len(zones) < 2 {
		return notApplicable("the pool spans %s", plural(int64(len(zones)), "labelled zone"))
	}
	var r report
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		wanted, remains := p.without(zones[zone])
		judgeLoss(&r, Object{Kind: "Zone", Name: zone}, "zone", wanted, remains)
	}
	return r.outcome("%d zones, %d nodes in the pool", len(zones), len(p.nodes))
}

func podAddresses(in *input) outcome {
	used := map[string]float64{}
	for i := range in.Pods {
		if pod := &in.Pods[i]; pod.Node != "" && !pod.HostNetwork && !finished(pod) {
			used[pod.Node]++
		}
	}
	var r report
	seen := 0
	for i := range in.Nodes {
		node := &in.Nodes[i]
		size := addresses(node.PodCIDRs)
		if size <= 0 {
			continue
		}
		seen++
		for _, t := range []tier{{Critical, 0.95}, {High, 0.8}} {
			if used[node.Name]/size > t.over {
				r.add(t.severity, nodeObject(node.Name), percent(used[node.Name], size), percent(t.over, 1), "%.0f of %.0f pod addresses are used", used[node.Name], size)
				break
			}
		}
	}
	if seen == 0 {
		return notApplicable("no node has a pod CIDR: the network plugin hands out addresses itself")
	}
	return r.outcome("%d nodes with a pod CIDR", seen)
}

// addresses is the number of usable addresses of the smallest pod CIDR.
func addresses(cidrs []string) float64 {
	smallest := 0.0
	for _, text := range cidrs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		free := prefix.Addr().BitLen() - prefix.Bits()
		size := float64(uint64(1)<<min(free, 62)) - 2
		if smallest == 0 || size < smallest {
			smallest = size
		}
	}
	return smallest
}

func quotas(in *input) outcome {
	if len(in.Quotas) == 0 {
		return notApplicable("there is no quota")
	}
	var r report
	for i := range in.Quotas {
		quota := &in.Quotas[i]
		for _, name := range slices.Sorted(maps.Keys(quota.Hard)) {
			hard, used := quota.Hard[name], quota.Used[name]
			if hard <= 0 {
				continue // a quota of zero forbids on purpose
			}
			value := fmt.Sprintf("%s: %s", name, percent(used, hard))
			switch {
			case used >= hard:
				r.add(High, object("ResourceQuota", quota.Meta), value, "100 %", "the quota of %s is full", name)
			case used/hard > 0.9:
				r.add(Low, object("ResourceQuota", quota.Meta), value, "90 %", "the quota of %s is almost full", name)
			}
		}
	}
	return r.outcome("%d quotas", len(in.Quotas))
}

func envelope(in *input) outcome {
	if len(in.Nodes) == 0 {
		return notApplicable("the cluster has no nodes")
	}
	pods, containers := 0, 0
	for i := range in.Pods {
		if pod := &in.Pods[i]; !finished(pod) {
			pods++
			containers += len(pod.Containers)
		}
	}
	var r report
	for _, limit := range []struct {
		what      string
		have, max int
	}{{"nodes", len(in.Nodes), 5000}, {"pods", pods, 150_000}, {"containers", containers, 300_000}} {
		if limit.have*10 > limit.max*8 {
			r.add(Medium, Object{Kind: "Cluster", Name: in.Cluster}, fmt.Sprintf("%d %s", limit.have, limit.what), fmt.Sprintf("80 %% of %d", limit.max),
				"the cluster nears the size that Kubernetes is tested for")
		}
	}
	return r.outcome("%d nodes, %d pods, %d containers", len(in.Nodes), pods, containers)
}
