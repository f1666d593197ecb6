package checks_test

import (
	"strconv"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// scenario is the healthy fixture with one change, and every finding that
// must come of it: "ID severity object".
type scenario struct {
	name   string
	change func(*snapshot.Snapshot)
	want   []string
}

func refused() *snapshot.Problem {
	return &snapshot.Problem{Reason: snapshot.ReasonRefused, Message: "dial tcp: connect: connection refused"}
}

// crashLoop makes a container crash-loop, now waiting.
func crashLoop(pod *snapshot.Pod, restarts int32) {
	pod.Ready.Status, pod.Ready.Changed = "False", ago(30*time.Second)
	pod.Containers[0] = snapshot.Container{
		Name: "app", Restarts: restarts, Waiting: "CrashLoopBackOff",
		LastExit: &snapshot.Exit{Code: 1, Reason: "Error", Started: ago(12 * time.Second), Finished: ago(10 * time.Second)},
	}
}

func faults() []scenario {
	return append(append(controlPlaneFaults(), nodeAndCertificateFaults()...), workloadFaults()...)
}

func controlPlaneFaults() []scenario {
	etcdPod := "Pod/kube-system/etcd-cp-2"
	return []scenario{
		{"control plane node is not ready", func(s *snapshot.Snapshot) {
			setCondition(node(s, "cp-1").Conditions, "Ready", "Unknown", time.Minute)
		}, []string{"CP-01 critical Node/cp-1", "ND-01 high Node/cp-1"}},
		{"two control plane replicas", func(s *snapshot.Snapshot) {
			for _, name := range []string{"etcd-cp-3", "etcd-cp-2"} {
				pod(s, name).Component = nil
			}
		}, []string{"CP-02 medium Cluster/a"}},
		{"control plane pod has restarted", func(s *snapshot.Snapshot) {
			c := &pod(s, "kube-apiserver-cp-1").Containers[0]
			c.Restarts, c.LastExit = 1, &snapshot.Exit{Code: 137, Started: ago(9 * day), Finished: ago(3 * hour)}
		}, []string{"CP-06 medium Pod/kube-system/kube-apiserver-cp-1"}},
		{"control plane pod is not ready", func(s *snapshot.Snapshot) {
			pod(s, "kube-apiserver-cp-1").Ready.Status = "False"
		}, []string{"CP-06 high Pod/kube-system/kube-apiserver-cp-1"}},
		{"scheduler has no leader", func(s *snapshot.Snapshot) {
			lease(s, "kube-scheduler").Renewed = agoPtr(31 * time.Second)
		}, []string{"CP-07 critical Lease/kube-system/kube-scheduler"}},
		{"scheduler never led", func(s *snapshot.Snapshot) {
			lease(s, "kube-scheduler").Name = "other"
		}, []string{"CP-07 critical Lease/kube-system/kube-scheduler"}},
		{"one scheduler of three refuses", func(s *snapshot.Snapshot) {
			p := probe(s, "kube-scheduler-cp-2")
			p.OK, p.Status, p.Problem = false, 0, refused()
		}, []string{"CP-08 high Pod/kube-system/kube-scheduler-cp-2"}},
		{"every scheduler is unhealthy", func(s *snapshot.Snapshot) {
			for _, name := range []string{"1", "2", "3"} {
				p := probe(s, "kube-scheduler-cp-"+name)
				p.OK, p.Status, p.Body = false, 500, "leaderElection failed"
			}
		}, []string{
			"CP-08 critical Pod/kube-system/kube-scheduler-cp-1", "CP-08 critical Pod/kube-system/kube-scheduler-cp-2",
			"CP-08 critical Pod/kube-system/kube-scheduler-cp-3",
		}},
		{"kubelet is too old", func(s *snapshot.Snapshot) { node(s, "worker-1").Kubelet = "v1.33.9" }, []string{"CP-09 high Node/worker-1"}},
		{"kubelet is newer", func(s *snapshot.Snapshot) { node(s, "worker-1").Kubelet = "v1.38.0-rc.1+k3s" }, []string{"CP-09 high Node/worker-1"}},
		{"etcd member is down", func(s *snapshot.Snapshot) {
			p := probe(s, "etcd-cp-2")
			p.OK, p.Status, p.Problem = false, 0, refused()
		}, []string{"ET-01 critical " + etcdPod, "ET-02 critical Cluster/a"}},
		{"two etcd members are down", func(s *snapshot.Snapshot) {
			for _, name := range []string{"etcd-cp-2", "etcd-cp-3"} {
				p := probe(s, name)
				p.OK, p.Status, p.Body = false, 503, `{"health":"false","reason":"RAFT NO LEADER"}`
			}
		}, []string{"ET-01 critical " + etcdPod, "ET-01 critical Pod/kube-system/etcd-cp-3", "ET-02 critical Cluster/a"}},
		{"etcd member sees no leader", func(s *snapshot.Snapshot) {
			replace(scrape(s, "etcd-cp-2").First, "etcd_server_has_leader", 0)
		}, []string{"ET-03 critical " + etcdPod}},
		{"etcd disk is slow", func(s *snapshot.Snapshot) {
			slow(scrape(s, "etcd-cp-2").First, "etcd_disk_wal_fsync_duration_seconds", 1.5)
		}, []string{"ET-04 critical " + etcdPod}},
		{"etcd disk was slow while etcd started", func(s *snapshot.Snapshot) {
			samples := scrape(s, "etcd-cp-2").First
			replace(samples, "process_start_time_seconds", float64(ago(5*time.Minute).Unix()))
			slow(samples, "etcd_disk_wal_fsync_duration_seconds", 1.5)
		}, []string{"ET-04 medium " + etcdPod}},
		{"etcd disk is slow now", func(s *snapshot.Snapshot) {
			sc := scrape(s, "etcd-cp-2")
			second := &snapshot.Samples{At: at.Add(10 * time.Second)}
			startedLongAgo(second)
			set(second, "etcd_server_has_leader", 1)
			set(second, "etcd_mvcc_db_total_size_in_bytes", 1<<30)
			set(second, "etcd_mvcc_db_total_size_in_use_in_bytes", 900<<20)
			second.Values = append(second.Values, histogram("etcd_disk_backend_commit_duration_seconds", 0.004, 1e5)...)
			for _, sample := range histogram("etcd_disk_wal_fsync_duration_seconds", 0.002, 1e5) {
				if upper, err := strconv.ParseFloat(sample.Labels["le"], 64); err != nil || upper >= 2 {
					sample.Value += 60
				}
				second.Values = append(second.Values, sample)
			}
			sc.Second = second
		}, []string{"ET-04 critical " + etcdPod}},
		{"etcd commits are slow", func(s *snapshot.Snapshot) {
			slow(scrape(s, "etcd-cp-2").First, "etcd_disk_backend_commit_duration_seconds", 0.4)
		}, []string{"ET-05 high " + etcdPod}},
		{"etcd is nearly full", func(s *snapshot.Snapshot) {
			samples := scrape(s, "etcd-cp-2").First
			replace(samples, "etcd_mvcc_db_total_size_in_bytes", 7<<30)
			replace(samples, "etcd_mvcc_db_total_size_in_use_in_bytes", 6<<30)
		}, []string{"ET-08 critical " + etcdPod}},
		{"etcd is nearly full, seen by the API server only", func(s *snapshot.Snapshot) {
			loopbackOnly(s)
			replace(scrape(s, "10.0.0.1:6443").First, "apiserver_storage_size_bytes", 1.6*(1<<30))
		}, []string{"ET-08 high Cluster/a"}},
		{"etcd is fragmented", func(s *snapshot.Snapshot) {
			replace(scrape(s, "etcd-cp-2").First, "etcd_mvcc_db_total_size_in_use_in_bytes", 300<<20)
		}, []string{"ET-10 medium " + etcdPod}},
		{"etcd has an alarm", func(s *snapshot.Snapshot) {
			p := probe(s, "etcd-cp-2")
			p.OK, p.Status, p.Body = false, 503, `{"health":"false","reason":"ALARM NOSPACE"}`
		}, []string{"ET-11 critical " + etcdPod}},
		{"events explode", func(s *snapshot.Snapshot) {
			set(scrape(s, "10.0.0.1:6443").First, "apiserver_resource_objects", 1.6e6, "resource", "reports", "group", "kyverno.io")
		}, []string{"ET-17 high Resource/reports.kyverno.io"}},
		{"API server is not ready", func(s *snapshot.Snapshot) {
			s.Readyz = &snapshot.HealthReport{Status: 500, Checks: []snapshot.HealthCheck{{Name: "informer-sync"}}}
		}, []string{"AP-01 critical APIServer/https://10.0.0.1:6443"}},
		{"one API server of three is not ready", func(s *snapshot.Snapshot) {
			p := probe(s, "kube-apiserver-cp-3")
			p.OK, p.Status = false, 500
		}, []string{"AP-01 critical Pod/kube-system/kube-apiserver-cp-3"}},
		{"API requests fail", func(s *snapshot.Snapshot) {
			set(scrape(s, "10.0.0.1:6443").First, "apiserver_request_total", 3e4, "code", "503")
		}, []string{"AP-03 high APIServer/10.0.0.1:6443"}},
		{"requests are rejected", func(s *snapshot.Snapshot) {
			set(scrape(s, "10.0.0.1:6443").First, "apiserver_flowcontrol_rejected_requests_total", 5e4, "priority_level", "global-default", "reason", "queue-full")
		}, []string{"AP-04 high PriorityLevelConfiguration/global-default"}},
		{"aggregated API is down", func(s *snapshot.Snapshot) {
			c := cond("Available", "False", hour)
			s.APIServices = append(s.APIServices, snapshot.APIService{Meta: meta("", "v1beta1.metrics.k8s.io"), Service: "kube-system/metrics-server", Available: &c})
		}, []string{"AP-06 high APIService/v1beta1.metrics.k8s.io"}},
		{"webhook has no endpoint", func(s *snapshot.Snapshot) {
			noEndpoints(s, "hook")
			for _, name := range []string{"hook-0", "hook-1"} {
				pod(s, name).Ready = &snapshot.Condition{Status: "False", Changed: ago(time.Minute)}
			}
		}, []string{"AP-07 critical ValidatingWebhookConfiguration/guard", "SV-01 high Service/guard/hook"}},
		{"ignored webhook's service is missing", func(s *snapshot.Snapshot) {
			s.Webhooks[0].Fail, s.Webhooks[0].Service = false, "guard/gone"
		}, []string{"AP-07 low ValidatingWebhookConfiguration/guard"}},
		{"deprecated API is used", func(s *snapshot.Snapshot) {
			set(scrape(s, "10.0.0.1:6443").First, "apiserver_requested_deprecated_apis", 1, "group", "flowcontrol.apiserver.k8s.io", "version", "v1beta3", "resource", "flowschemas", "removed_release", "1.38")
		}, []string{"AP-09 medium API/flowschemas.v1beta3.flowcontrol.apiserver.k8s.io"}},
		{"storage is slow", func(s *snapshot.Snapshot) {
			slow(scrape(s, "10.0.0.1:6443").First, "etcd_request_duration_seconds", 3)
		}, []string{"AP-10 high APIServer/10.0.0.1:6443"}},
		{"namespace hangs", func(s *snapshot.Snapshot) { s.Namespaces[1].Deleted = agoPtr(hour) }, []string{"AP-12 medium Namespace/guard"}},
	}
}

// loopbackOnly makes etcd answer on its node's loopback only, as kubeadm does.
func loopbackOnly(s *snapshot.Snapshot) {
	for _, name := range []string{"etcd", "kube-scheduler", "kube-controller-manager"} {
		for _, i := range []string{"1", "2", "3"} {
			p := probe(s, name+"-cp-"+i)
			p.NodeLocal, p.OK, p.Status, p.Body, p.Problem = true, false, 0, "", refused()
		}
	}
	for i := range s.Scrapes {
		if s.Scrapes[i].Component == "etcd" {
			s.Scrapes[i] = snapshot.Scrape{Component: "etcd", Instance: s.Scrapes[i].Instance, NodeLocal: true, Problem: refused()}
		}
	}
}
