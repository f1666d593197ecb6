package checks_test

import (
	"strconv"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func nodeAndCertificateFaults() []scenario {
	return []scenario{
		{"node has stopped its heartbeats and counts as ready", func(s *snapshot.Snapshot) {
			lease(s, "worker-3").Renewed = agoPtr(50 * time.Second)
		}, []string{"ND-01 high Node/worker-3"}},
		{"node has just become not ready with a fresh lease", func(s *snapshot.Snapshot) {
			setCondition(node(s, "worker-3").Conditions, "Ready", "False", 3*time.Minute)
		}, []string{"ND-01 medium Node/worker-3"}},
		{"many nodes are lost", func(s *snapshot.Snapshot) {
			for _, name := range []string{"worker-3", "worker-4"} {
				setCondition(node(s, name).Conditions, "Ready", "Unknown", time.Minute)
			}
		}, []string{"ND-01 critical Node/worker-3", "ND-01 critical Node/worker-4"}},
		{"node is under pressure", func(s *snapshot.Snapshot) {
			setCondition(node(s, "worker-2").Conditions, "DiskPressure", "True", hour)
		}, []string{"ND-03 high Node/worker-2"}},
		{"node problem detector speaks", func(s *snapshot.Snapshot) {
			setCondition(node(s, "worker-2").Conditions, "KernelDeadlock", "True", hour)
		}, []string{"ND-04 high Node/worker-2"}},
		{"node is full of pods", func(s *snapshot.Snapshot) { node(s, "worker-4").Allocatable.Pods = 2 }, []string{"ND-10 high Node/worker-4"}},
		{"node is left cordoned", func(s *snapshot.Snapshot) {
			n := node(s, "worker-4")
			n.Unschedulable = true
			n.Taints = []snapshot.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule", Added: agoPtr(2 * day)}}
		}, []string{"ND-13 medium Node/worker-4"}},
		{"node is requested to the brim", func(s *snapshot.Snapshot) { pod(s, "cart-1").Requests.CPUMilli = 6800 }, []string{"ND-14 medium Node/worker-2"}},
		{"serving certificate of one replica ends", func(s *snapshot.Snapshot) {
			leaf := certificate(3 * day)
			s.Serving = append(s.Serving, snapshot.ServingCertificate{Endpoint: "10.0.0.3:6443", Leaf: &leaf})
		}, []string{"CE-01 high Endpoint/10.0.0.3:6443"}},
		{"serving certificate of one replica has expired", func(s *snapshot.Snapshot) {
			leaf := certificate(-day)
			s.Serving = append(s.Serving, snapshot.ServingCertificate{Endpoint: "10.0.0.3:6443", Leaf: &leaf})
		}, []string{"CE-01 critical Endpoint/10.0.0.3:6443"}},
		{"authority ends", func(s *snapshot.Snapshot) { s.Authorities[0] = certificate(300 * day) }, []string{"CE-03 high Authority/CN=it"}},
		{"kubelet waits for its certificate", func(s *snapshot.Snapshot) {
			s.CSRs = append(s.CSRs, snapshot.CSR{Meta: meta("", "csr-1"), Signer: "kubernetes.io/kubelet-serving", Requester: "system:node:worker-1", Pending: true})
		}, []string{"CE-05 high CertificateSigningRequest/csr-1"}},
		{"webhook bundle ends", func(s *snapshot.Snapshot) {
			end := at.Add(10 * day)
			s.Webhooks[0].BundleExpires = &end
		}, []string{"CE-06 high ValidatingWebhookConfiguration/guard"}},
		{"client certificates end", func(s *snapshot.Snapshot) {
			slow(scrape(s, "10.0.0.1:6443").First, "apiserver_client_certificate_expiration_seconds", 3*86400)
		}, []string{"CE-07 high APIServer/10.0.0.1:6443"}},
		{"our certificate ends", func(s *snapshot.Snapshot) { s.ClientCertificate.NotAfter = at.Add(20 * day) }, []string{"CE-09 medium Kubeconfig/a"}},
		{"load balancer is pending", func(s *snapshot.Snapshot) {
			s.Services = append(s.Services, snapshot.Service{Meta: meta("shop", "lb"), Type: "LoadBalancer"})
		}, []string{"SV-03 high Service/shop/lb"}},
		{"no room for the loss of a node or zone", func(s *snapshot.Snapshot) {
			for _, name := range []string{"cart-0", "cart-1", "cart-2", "hook-1"} {
				pod(s, name).Requests.Memory = 25 << 30
			}
		}, []string{
			"CA-01 high Node/worker-1", "CA-01 high Node/worker-2", "CA-01 high Node/worker-3", "CA-01 high Node/worker-4",
			"CA-02 high Zone/z0", "CA-02 high Zone/z1", "ND-14 medium Node/worker-2",
		}},
		{"pod addresses run out", func(s *snapshot.Snapshot) { node(s, "worker-4").PodCIDRs = []string{"10.0.0.0/30"} }, []string{"CA-05 critical Node/worker-4"}},
		{"quota is full", func(s *snapshot.Snapshot) { s.Quotas[0].Used["pods"] = 100 }, []string{"CA-06 high ResourceQuota/shop/pods"}},
		{"quota is almost full", func(s *snapshot.Snapshot) { s.Quotas[0].Used["pods"] = 95 }, []string{"CA-06 low ResourceQuota/shop/pods"}},
		{"cluster is huge", func(s *snapshot.Snapshot) {
			for i := range 4100 {
				n := *node(s, "worker-1")
				n.Name = "big-" + strconv.Itoa(i)
				s.Nodes = append(s.Nodes, n)
			}
		}, []string{"CA-08 medium Cluster/a"}},
	}
}

func workloadFaults() []scenario {
	return []scenario{
		{"replicas are missing", func(s *snapshot.Snapshot) {
			workload(s, "cart").Available = 2
			pod(s, "cart-1").Ready = &snapshot.Condition{Status: "False", Changed: ago(hour)}
		}, []string{"WL-01 high Deployment/shop/cart"}},
		{"rollout is past its deadline", func(s *snapshot.Snapshot) {
			c := cond("Progressing", "False", time.Minute)
			c.Reason = "ProgressDeadlineExceeded"
			workload(s, "cart").Conditions = []snapshot.Condition{c}
		}, []string{"WL-01 high Deployment/shop/cart"}},
		{"fresh pod crash-loops", func(s *snapshot.Snapshot) {
			p := newPod("shop", "bad", "worker-1")
			p.Created = ago(50 * time.Second)
			crashLoop(&p, 3)
			s.Pods = append(s.Pods, p)
		}, []string{"WL-02 high Pod/shop/bad"}},
		{"pod crash-loops and runs just now", func(s *snapshot.Snapshot) {
			p := newPod("shop", "bad", "worker-1")
			crashLoop(&p, 9)
			p.Containers[0].Waiting, p.Containers[0].Running = "", agoPtr(time.Second)
			s.Pods = append(s.Pods, p)
		}, []string{"WL-02 high Pod/shop/bad"}},
		{"pod cannot be placed", func(s *snapshot.Snapshot) {
			p := newPod("shop", "big", "")
			c := cond("PodScheduled", "False", hour)
			p.Phase, p.Ready, p.Scheduled, p.Containers, p.Created = "Pending", nil, &c, nil, ago(hour)
			s.Pods = append(s.Pods, p)
		}, []string{"WL-03 high Pod/shop/big"}},
		{"critical workload has one replica", func(s *snapshot.Snapshot) {
			addWorkload(s, "Deployment", "shop", "pay", map[string]string{"app": "pay"}, "worker-2")
			workload(s, "pay").Labels = map[string]string{"fleetwatch.io/critical": "true"}
		}, []string{"WL-05 high Deployment/shop/pay"}},
		{"served workload runs on one node", func(s *snapshot.Snapshot) {
			for _, name := range []string{"db-0", "db-1"} {
				pod(s, name).Node = "worker-4"
			}
		}, []string{"WL-05 low StatefulSet/shop/db"}},
		{"budget can never be met", func(s *snapshot.Snapshot) {
			s.PDBs[0] = snapshot.PDB{Meta: meta("shop", "cart"), Healthy: 3, Desired: 3, Expected: 3}
		}, []string{"WL-06 high PodDisruptionBudget/shop/cart"}},
		{"budget is used up", func(s *snapshot.Snapshot) {
			s.PDBs[0] = snapshot.PDB{Meta: meta("shop", "cart"), Healthy: 2, Desired: 2, Expected: 3}
		}, []string{"WL-06 medium PodDisruptionBudget/shop/cart"}},
		{"autoscaler is at its end", func(s *snapshot.Snapshot) {
			h := &s.HPAs[0]
			h.Current = 6
			c := cond("ScalingLimited", "True", hour)
			c.Reason = "TooManyReplicas"
			h.Conditions[2] = c
		}, []string{"WL-07 high HorizontalPodAutoscaler/shop/cart"}},
		{"autoscaler has no target", func(s *snapshot.Snapshot) { s.HPAs[0].Target.Name = "gone" }, []string{"WL-07 high HorizontalPodAutoscaler/shop/cart"}},
		{"job failed", func(s *snapshot.Snapshot) {
			s.Jobs[0].Conditions = []snapshot.Condition{cond("Failed", "True", hour)}
		}, []string{"WL-08 medium Job/shop/migrate"}},
		{"latest run of a cron job failed", func(s *snapshot.Snapshot) {
			s.Jobs[2].Conditions = []snapshot.Condition{cond("Failed", "True", hour)}
		}, []string{"WL-08 medium Job/shop/nightly-2"}},
		{"pod does not end", func(s *snapshot.Snapshot) { pod(s, "agent-1").Deleted = agoPtr(hour) }, []string{"WL-09 medium Pod/shop/agent-1"}},
		{"claim is lost", func(s *snapshot.Snapshot) { s.PVCs[0].Phase = "Lost" }, []string{"WL-12 high PersistentVolumeClaim/shop/db-0"}},
		{"wanted claim is pending", func(s *snapshot.Snapshot) {
			pod(s, "db-0").Claims = []string{"first-consumer"}
		}, []string{"WL-12 high PersistentVolumeClaim/shop/first-consumer"}},
		{"volume has failed", func(s *snapshot.Snapshot) { s.PVs[0].Phase = "Failed" }, []string{"WL-12 high PersistentVolume/pv-0"}},
		{"selector matches nothing", func(s *snapshot.Snapshot) {
			addService(s, "shop", "wrong", map[string]string{"app": "carrt"})
			s.Services[len(s.Services)-1].Created = ago(time.Minute)
		}, []string{"SV-01 high Service/shop/wrong"}},
		{"endpoint on a lost node", func(s *snapshot.Snapshot) {
			setCondition(node(s, "worker-4").Conditions, "Ready", "Unknown", 10*time.Minute)
		}, []string{"ND-01 high Node/worker-4", "SV-02 high EndpointSlice/guard/hook-x"}},
		{"DNS has one replica", func(s *snapshot.Snapshot) { workload(s, "coredns").Ready = 1 }, []string{"CF-07 high Deployment/kube-system/coredns"}},
	}
}

// decoys are changes that must make nothing fail.
func decoys() []scenario {
	return []scenario{
		{"healthy", func(*snapshot.Snapshot) {}, nil},
		{"kubeadm answers on loopback only", loopbackOnly, nil},
		{"hosted control plane", hostedControlPlane, nil},
		{"rollout in progress", func(s *snapshot.Snapshot) {
			w := workload(s, "cart")
			w.Available, w.Updated = 2, 1
			p := pod(s, "cart-1")
			p.Created, p.Ready.Status, p.Ready.Changed = ago(time.Minute), "False", ago(time.Minute)
		}, nil},
		{"annotated cordon", func(s *snapshot.Snapshot) {
			n := node(s, "worker-4")
			n.Unschedulable, n.CordonNote = true, "disk exchange, ticket 7"
		}, nil},
		{"fresh service and its pods", func(s *snapshot.Snapshot) {
			addWorkload(s, "Deployment", "shop", "new", map[string]string{"app": "new"}, "worker-1", "worker-2")
			for _, name := range []string{"new-0", "new-1"} {
				p := pod(s, name)
				p.Created, p.Ready.Status = ago(time.Minute), "False"
			}
			addService(s, "shop", "new", map[string]string{"app": "new"})
			noEndpoints(s, "new")
		}, nil},
		{"service of a job between two runs", func(s *snapshot.Snapshot) {
			p := newPod("shop", "report-x", "worker-1")
			p.Phase, p.Owner, p.Labels = "Succeeded", &snapshot.Owner{Kind: "Job", Name: "report"}, map[string]string{"app": "report"}
			s.Pods = append(s.Pods, p)
			addService(s, "shop", "report", map[string]string{"app": "report"})
			noEndpoints(s, "report")
		}, nil},
		{"clock of the cluster is an hour ahead", func(s *snapshot.Snapshot) {
			s.ClockSkew = hour
			pod(s, "starting").Created = at.Add(hour)
			for i := range s.Leases {
				t := s.Leases[i].Renewed.Add(hour)
				s.Leases[i].Renewed = &t
			}
		}, nil},
		{"pod waits for its scheduling gate", func(s *snapshot.Snapshot) {
			p := newPod("shop", "gated", "")
			p.Phase, p.Scheduled = "Pending", &snapshot.Condition{Status: "False", Reason: "SchedulingGated"}
			s.Pods = append(s.Pods, p)
		}, nil},
		{"two restarts long ago", func(s *snapshot.Snapshot) {
			c := &pod(s, "cart-1").Containers[0]
			c.Restarts, c.LastExit = 9, &snapshot.Exit{Code: 1, Started: ago(3 * day), Finished: ago(2 * day)}
		}, nil},
		{"old authority ends while the new one lasts", func(s *snapshot.Snapshot) {
			s.Authorities = append(s.Authorities, certificate(10*day))
		}, nil},
		{"virtual node without a readable version", func(s *snapshot.Snapshot) { node(s, "worker-1").Kubelet = "kwok-v0.8.0" }, nil},
	}
}

// hostedControlPlane takes away all that a managed service does not show.
func hostedControlPlane(s *snapshot.Snapshot) {
	s.Nodes = s.Nodes[3:]
	kept := s.Pods[:0]
	for _, p := range s.Pods {
		if p.Component == nil {
			kept = append(kept, p)
		}
	}
	s.Pods, s.Probes = kept, nil
	s.Scrapes = s.Scrapes[len(s.Scrapes)-1:]
	leases := s.Leases[:0]
	for _, l := range s.Leases {
		if l.Namespace != "kube-system" {
			leases = append(leases, l)
		}
	}
	s.Leases = leases
}
