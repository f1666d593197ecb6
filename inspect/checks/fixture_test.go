package checks_test

import (
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// at is when every read of the fixture was made.
var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time     { return at.Add(-d) }
func agoPtr(d time.Duration) *time.Time { t := ago(d); return &t }

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

func meta(namespace, name string) snapshot.Meta {
	return snapshot.Meta{Namespace: namespace, Name: name, Created: ago(30 * day)}
}

func cond(kind, status string, changed time.Duration) snapshot.Condition {
	return snapshot.Condition{Type: kind, Status: status, Reason: "Because", Message: "of it", Changed: ago(changed), Heartbeat: ago(time.Minute)}
}

func certificate(left time.Duration) snapshot.Certificate {
	return snapshot.Certificate{Subject: "CN=it", Issuer: "CN=ca", Serial: "1", NotBefore: ago(day), NotAfter: at.Add(left)}
}

// healthy is a cluster with three control plane nodes, four workers in two
// zones, a shop behind services, and one decoy for each trap that is known.
func healthy() *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Cluster: "a", Server: "https://10.0.0.1:6443", Started: at, Finished: at.Add(6 * time.Second),
		Reads: map[snapshot.Resource]snapshot.Read{}, KubernetesVersion: "v1.37.2",
		Readyz: &snapshot.HealthReport{OK: true, Status: 200, Checks: []snapshot.HealthCheck{{Name: "etcd", OK: true}, {Name: "etcd-readiness", OK: true}}},
		Livez:  &snapshot.HealthReport{OK: true, Status: 200, Checks: []snapshot.HealthCheck{{Name: "ping", OK: true}}},
	}
	for _, resource := range snapshot.AllReads() {
		s.Reads[resource] = snapshot.Read{At: at, Items: 1}
	}
	leaf, ca, own := certificate(200*day), certificate(9*365*day), certificate(300*day)
	s.Serving = []snapshot.ServingCertificate{{Endpoint: "10.0.0.1:6443", Leaf: &leaf}}
	s.Authorities, s.ClientCertificate = []snapshot.Certificate{ca}, &own
	addNodes(s)
	addControlPlane(s)
	addShop(s)
	addDecoys(s)
	s.Scrapes = append(s.Scrapes, apiServerScrape())
	return s
}

func addNodes(s *snapshot.Snapshot) {
	for i := 1; i <= 7; i++ {
		node := snapshot.Node{
			Meta: meta("", "worker-"+strconv.Itoa(i-3)), Kubelet: "v1.36.1", PodCIDRs: []string{"10.244." + strconv.Itoa(i) + ".0/24"},
			Allocatable: snapshot.Resources{CPUMilli: 8000, Memory: 32 << 30, Pods: 110},
			Conditions: []snapshot.Condition{
				cond("Ready", "True", day), cond("MemoryPressure", "False", day), cond("DiskPressure", "False", day),
				cond("PIDPressure", "False", day), cond("NetworkUnavailable", "False", day),
				cond("StorageReady", "True", day), cond("KernelDeadlock", "False", day),
			},
		}
		node.Labels = map[string]string{"topology.kubernetes.io/zone": "z" + strconv.Itoa(i%2)}
		if i <= 3 {
			node.Name = "cp-" + strconv.Itoa(i)
			node.Labels["node-role.kubernetes.io/control-plane"] = ""
			node.Taints = []snapshot.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}}
		}
		s.Nodes = append(s.Nodes, node)
		s.Leases = append(s.Leases, snapshot.Lease{Meta: meta("kube-node-lease", node.Name), Holder: node.Name, Renewed: agoPtr(8 * time.Second)})
	}
}

func addControlPlane(s *snapshot.Snapshot) {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		s.Leases = append(s.Leases, snapshot.Lease{Meta: meta("kube-system", name), Holder: "cp-1", Renewed: agoPtr(2 * time.Second)})
	}
	for i := 1; i <= 3; i++ {
		host := "10.0.0." + strconv.Itoa(i)
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
			pod := newPod("kube-system", name+"-cp-"+strconv.Itoa(i), "cp-"+strconv.Itoa(i))
			pod.Static, pod.HostNetwork = true, true
			pod.Component = &snapshot.Component{Name: name, PodIP: host, Port: 1}
			s.Pods = append(s.Pods, pod)
			probe := snapshot.Probe{Component: name, Pod: pod.Name, Host: host, URL: "http://" + host, OK: true, Status: 200, Body: "ok"}
			s.Probes = append(s.Probes, probe)
			if name == "etcd" {
				s.Scrapes = append(s.Scrapes, etcdScrape(pod.Name))
			}
		}
	}
}

func newPod(namespace, name, node string) snapshot.Pod {
	ready, scheduled := cond("Ready", "True", day), cond("PodScheduled", "True", 30*day)
	return snapshot.Pod{
		Meta: meta(namespace, name), Node: node, Phase: "Running", Requests: snapshot.Resources{CPUMilli: 500, Memory: 1 << 30},
		Ready: &ready, Scheduled: &scheduled, Containers: []snapshot.Container{{Name: "app", Ready: true, Running: agoPtr(day)}},
	}
}

func addWorkload(s *snapshot.Snapshot, kind, namespace, name string, labels map[string]string, nodes ...string) {
	n := int32(len(nodes))
	s.Workloads = append(s.Workloads, snapshot.Workload{
		Meta: meta(namespace, name), Kind: kind, Desired: n, Ready: n, Available: n, Updated: n,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, TemplateLabels: labels,
	})
	for i, node := range nodes {
		pod := newPod(namespace, name+"-"+strconv.Itoa(i), node)
		pod.Labels = labels
		pod.Owner = &snapshot.Owner{Kind: map[bool]string{true: kind, false: "ReplicaSet"}[kind != "Deployment"], Name: name}
		s.Pods = append(s.Pods, pod)
	}
}

func addService(s *snapshot.Snapshot, namespace, name string, selector map[string]string) {
	s.Services = append(s.Services, snapshot.Service{Meta: meta(namespace, name), Type: "ClusterIP", Selector: selector})
	slice := snapshot.EndpointSlice{Meta: meta(namespace, name+"-x"), Service: name}
	for _, pod := range s.Pods {
		if pod.Namespace == namespace && len(selector) > 0 && pod.Labels["app"] == selector["app"] && pod.Labels["k8s-app"] == selector["k8s-app"] {
			slice.Endpoints = append(slice.Endpoints, snapshot.Endpoint{Ready: true, Node: pod.Node, Target: pod.Name})
		}
	}
	s.EndpointSlices = append(s.EndpointSlices, slice)
}

func addShop(s *snapshot.Snapshot) {
	app := func(name string) map[string]string { return map[string]string{"app": name} }
	dns := map[string]string{"k8s-app": "kube-dns"}
	addWorkload(s, "Deployment", "kube-system", "coredns", dns, "worker-1", "worker-2")
	addService(s, "kube-system", "kube-dns", dns)
	addWorkload(s, "Deployment", "shop", "cart", app("cart"), "worker-1", "worker-2", "worker-3")
	addService(s, "shop", "cart", app("cart"))
	addWorkload(s, "StatefulSet", "shop", "db", app("db"), "worker-1", "worker-2")
	addService(s, "shop", "db", app("db"))
	addWorkload(s, "DaemonSet", "shop", "agent", app("agent"), "worker-1", "worker-2", "worker-3", "worker-4")
	addWorkload(s, "Deployment", "guard", "hook", app("hook"), "worker-3", "worker-4")
	addService(s, "guard", "hook", app("hook"))
	s.Services = append(s.Services, snapshot.Service{Meta: meta("shop", "front"), Type: "LoadBalancer", LoadBalancer: 1})
	end := at.Add(200 * day)
	s.Webhooks = []snapshot.Webhook{{Kind: "ValidatingWebhookConfiguration", Configuration: "guard", Name: "guard.example", Fail: true, Service: "guard/hook", BundleExpires: &end}}
	available := cond("Available", "True", day)
	s.APIServices = []snapshot.APIService{{Meta: meta("", "v1.apps"), Available: &available}}
	s.PDBs = []snapshot.PDB{{Meta: meta("shop", "cart"), Allowed: 1, Healthy: 3, Desired: 2, Expected: 3}}
	s.HPAs = []snapshot.HPA{{
		Meta: meta("shop", "cart"), Target: snapshot.Owner{Kind: "Deployment", Name: "cart"}, Min: 2, Max: 6, Current: 3, Desired: 3,
		Conditions: []snapshot.Condition{cond("AbleToScale", "True", day), cond("ScalingActive", "True", day), cond("ScalingLimited", "False", day)},
	}}
	s.PVCs = []snapshot.PVC{{Meta: meta("shop", "db-0"), Phase: "Bound", Volume: "pv-0"}}
	s.PVs = []snapshot.PV{{Meta: meta("", "pv-0"), Phase: "Bound", Claim: "shop/db-0"}}
	s.Namespaces = []snapshot.Namespace{{Meta: meta("", "shop"), Phase: "Active"}, {Meta: meta("", "guard"), Phase: "Active"}}
	s.Quotas = []snapshot.Quota{{Meta: meta("shop", "pods"), Hard: map[string]float64{"pods": 100}, Used: map[string]float64{"pods": 9}}}
	s.CSRs = []snapshot.CSR{{Meta: meta("", "csr-done"), Signer: "kubernetes.io/kubelet-serving"}}
	s.Jobs = []snapshot.Job{{Meta: meta("shop", "migrate"), Conditions: []snapshot.Condition{cond("Complete", "True", day)}}}
}

// addDecoys are things that look bad to careless inspectors and are not.
func addDecoys(s *snapshot.Snapshot) {
	off := map[string]string{"app": "off"}
	addWorkload(s, "Deployment", "shop", "off", off) // scaled to zero, and its service
	addService(s, "shop", "off", off)
	addService(s, "shop", "no-selector", nil)
	s.Services = append(s.Services, snapshot.Service{Meta: meta("shop", "elsewhere"), Type: "ExternalName"})
	done := newPod("shop", "migrate-x", "worker-1")
	done.Phase, done.Ready.Status = "Succeeded", "False"
	done.Containers[0].Restarts = 5
	s.Pods = append(s.Pods, done)
	starting := newPod("shop", "starting", "worker-2")
	starting.Created, starting.Phase, starting.Ready.Status = ago(time.Minute), "Pending", "False"
	starting.Containers[0] = snapshot.Container{Name: "app", Waiting: "ContainerCreating"}
	s.Pods = append(s.Pods, starting)
	failed := snapshot.Job{Meta: meta("shop", "nightly-1"), Owner: &snapshot.Owner{Kind: "CronJob", Name: "nightly"}, Conditions: []snapshot.Condition{cond("Failed", "True", 2*day)}}
	failed.Created = ago(2 * day)
	succeeded := snapshot.Job{Meta: meta("shop", "nightly-2"), Owner: &snapshot.Owner{Kind: "CronJob", Name: "nightly"}, Conditions: []snapshot.Condition{cond("Complete", "True", day)}}
	succeeded.Created = ago(day)
	s.Jobs = append(s.Jobs, failed, succeeded)
	s.CronJobs = []snapshot.CronJob{{Meta: meta("shop", "nightly")}, {Meta: meta("shop", "paused"), Suspended: true}}
	s.PVCs = append(s.PVCs, snapshot.PVC{Meta: meta("shop", "first-consumer"), Phase: "Pending"})
	s.Quotas = append(s.Quotas, snapshot.Quota{Meta: meta("shop", "none"), Hard: map[string]float64{"services.loadbalancers": 0}, Used: map[string]float64{"services.loadbalancers": 0}})
	byURL := snapshot.Webhook{Kind: "MutatingWebhookConfiguration", Configuration: "cloud", Name: "cloud.example", Fail: true}
	s.Webhooks = append(s.Webhooks, byURL)
}

// histogram makes cumulative buckets in which every observation takes value.
func histogram(name string, value, count float64) []snapshot.Sample {
	samples := []snapshot.Sample{{Name: name + "_count", Value: count}}
	for _, le := range []float64{0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.25, 0.5, 1, 2, 4, 8, 86400, 604800, 2592000, 31104000, math.Inf(1)} {
		text, n := strconv.FormatFloat(le, 'g', -1, 64), 0.0
		if value <= le {
			n = count
		}
		samples = append(samples, snapshot.Sample{Name: name + "_bucket", Labels: map[string]string{"le": text}, Value: n})
	}
	return samples
}

func set(s *snapshot.Samples, name string, value float64, pairs ...string) {
	labels := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	s.Values = append(s.Values, snapshot.Sample{Name: name, Labels: labels, Value: value})
}

func startedLongAgo(s *snapshot.Samples) {
	set(s, "process_start_time_seconds", float64(ago(30*day).Unix()))
}

func etcdScrape(pod string) snapshot.Scrape {
	s := &snapshot.Samples{At: at}
	startedLongAgo(s)
	set(s, "etcd_server_has_leader", 1)
	set(s, "etcd_server_quota_backend_bytes", 8<<30)
	set(s, "etcd_mvcc_db_total_size_in_bytes", 1<<30)
	set(s, "etcd_mvcc_db_total_size_in_use_in_bytes", 900<<20)
	s.Values = append(s.Values, histogram("etcd_disk_wal_fsync_duration_seconds", 0.002, 1e5)...)
	s.Values = append(s.Values, histogram("etcd_disk_backend_commit_duration_seconds", 0.004, 1e5)...)
	return snapshot.Scrape{Component: "etcd", Instance: pod, First: s}
}

func apiServerScrape() snapshot.Scrape {
	s := &snapshot.Samples{At: at}
	startedLongAgo(s)
	set(s, "apiserver_storage_size_bytes", 1<<30)
	set(s, "apiserver_resource_objects", 2000, "resource", "pods")
	set(s, "apiserver_requested_deprecated_apis", 1, "group", "", "version", "v1", "resource", "componentstatuses")
	set(s, "apiserver_request_total", 1e6, "code", "200")
	set(s, "apiserver_request_total", 10, "code", "500")
	set(s, "apiserver_flowcontrol_dispatched_requests_total", 1e6, "priority_level", "global-default")
	s.Values = append(s.Values, histogram("etcd_request_duration_seconds", 0.008, 1e6)...)
	s.Values = append(s.Values, histogram("apiserver_client_certificate_expiration_seconds", 100*86400, 1e5)...)
	return snapshot.Scrape{Component: "kube-apiserver", Instance: "10.0.0.1:6443", First: s}
}

func pod(s *snapshot.Snapshot, name string) *snapshot.Pod {
	for i := range s.Pods {
		if s.Pods[i].Name == name {
			return &s.Pods[i]
		}
	}
	panic("no pod " + name)
}

func node(s *snapshot.Snapshot, name string) *snapshot.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	panic("no node " + name)
}

func workload(s *snapshot.Snapshot, name string) *snapshot.Workload {
	for i := range s.Workloads {
		if s.Workloads[i].Name == name {
			return &s.Workloads[i]
		}
	}
	panic("no workload " + name)
}

func lease(s *snapshot.Snapshot, name string) *snapshot.Lease {
	for i := range s.Leases {
		if s.Leases[i].Name == name {
			return &s.Leases[i]
		}
	}
	panic("no lease " + name)
}

func probe(s *snapshot.Snapshot, pod string) *snapshot.Probe {
	for i := range s.Probes {
		if s.Probes[i].Pod == pod {
			return &s.Probes[i]
		}
	}
	panic("no probe " + pod)
}

func scrape(s *snapshot.Snapshot, instance string) *snapshot.Scrape {
	for i := range s.Scrapes {
		if s.Scrapes[i].Instance == instance {
			return &s.Scrapes[i]
		}
	}
	panic("no scrape " + instance)
}

// replace sets every series of a family to one value.
func replace(s *snapshot.Samples, name string, value float64) {
	for i := range s.Values {
		if s.Values[i].Name == name {
			s.Values[i].Value = value
		}
	}
}

// slow makes every observation of a histogram take value.
func slow(s *snapshot.Samples, name string, value float64) {
	kept := s.Values[:0]
	for _, sample := range s.Values {
		if sample.Name != name+"_bucket" && sample.Name != name+"_count" {
			kept = append(kept, sample)
		}
	}
	s.Values = append(kept, histogram(name, value, 1e5)...)
}

func setCondition(conditions []snapshot.Condition, kind, status string, changed time.Duration) {
	for i := range conditions {
		if conditions[i].Type == kind {
			conditions[i] = cond(kind, status, changed)
		}
	}
}

// noEndpoints takes the ready endpoints of a service away.
func noEndpoints(s *snapshot.Snapshot, service string) {
	for i := range s.EndpointSlices {
		if s.EndpointSlices[i].Service == service {
			s.EndpointSlices[i].Endpoints = nil
		}
	}
}
