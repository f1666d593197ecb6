package checks

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

const kubeSystem = "kube-system"

func controlPlaneChecks() []Check {
	return []Check{
		{
			ID: "CP-01", Title: "Control plane nodes are ready and without pressure", Category: ControlPlane, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.Nodes},
			Threshold: "any control plane node not Ready, or with memory, disk or PID pressure", Source: "kube-jarvis",
			Remedy: "Look at the kubelet and the disk of the named node before anything else; do not drain a second control plane node.",
			eval:   controlPlaneNodes,
		},
		{
			ID: "CP-02", Title: "The control plane survives the loss of one replica", Category: ControlPlane, Severity: Medium,
			Reads:     []snapshot.Resource{snapshot.Pods},
			Threshold: "fewer than 3 etcd members, an even number of them, or fewer than 2 API servers", Source: "etcd documentation, popeye",
			Remedy: "Add control plane nodes until there are three etcd members and at least two API servers.",
			eval:   controlPlaneReplicas,
		},
		{
			ID: "CP-06", Title: "Control plane pods are ready and do not restart", Category: ControlPlane, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Pods},
			Threshold: "not ready, or 3 restarts with the last within 10 min high; any restart within 24 h medium", Source: "kube-jarvis, TKE",
			Remedy: "Read the previous log of the named pod: kubectl -n kube-system logs --previous POD.",
			eval:   controlPlaneRestarts,
		},
		{
			ID: "CP-07", Title: "Controller manager and scheduler hold fresh leader leases", Category: ControlPlane, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.SystemLeases, snapshot.Pods},
			Threshold: "lease renewed more than 30 s ago, or missing", Source: "fleetwatch (a lease lasts 15 s)",
			Remedy: "No one is leader: look at the component's pods and at the API server's and etcd's latency.",
			eval:   leaderLeases,
		},
		{
			ID: "CP-08", Title: "Controller manager and scheduler answer health questions", Category: ControlPlane, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.ControlPlane},
			Threshold: "/healthz not ok; critical when no instance answers, else high", Source: "kubernetes-mixin (KubeSchedulerDown)",
			Remedy: "Look at the named pod's log; while no instance runs, nothing is scheduled or reconciled.",
			eval:   componentHealth,
		},
		{
			ID: "CP-09", Title: "Kubelet versions are within the supported skew", Category: ControlPlane, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Version, snapshot.Nodes},
			Threshold: "kubelet newer than the API server, or more than 3 minor versions older", Source: "Kubernetes version skew policy",
			Remedy: "Upgrade the named nodes before the event, or postpone the control plane upgrade.",
			eval:   versionSkew,
		},
	}
}

func isControlPlane(node *snapshot.Node) bool {
	_, current := node.Labels["node-role.kubernetes.io/control-plane"]
	_, old := node.Labels["node-role.kubernetes.io/master"]
	return current || old
}

func controlPlaneNodes(in *input) outcome {
	var r report
	seen := 0
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if !isControlPlane(node) {
			continue
		}
		seen++
		if !isTrue(node.Conditions, "Ready") {
			r.add(Critical, nodeObject(node.Name), "Ready="+statusOf(node.Conditions, "Ready"), "Ready=True",
				"control plane node is not ready%s", because(find(node.Conditions, "Ready")))
		}
		for _, kind := range pressures {
			if isTrue(node.Conditions, kind) {
				r.add(Critical, nodeObject(node.Name), kind+"=True", kind+"=False",
					"control plane node is under pressure%s", because(find(node.Conditions, kind)))
			}
		}
	}
	if seen == 0 {
		return notApplicable("no node carries the control plane role: the control plane is hosted")
	}
	return r.outcome("%d control plane nodes", seen)
}

func statusOf(conditions []snapshot.Condition, kind string) string {
	if found := find(conditions, kind); found != nil {
		return found.Status
	}
	return "missing"
}

// because is the reason and message of a condition as the end of a sentence.
func because(c *snapshot.Condition) string {
	switch {
	case c == nil || c.Reason == "" && c.Message == "":
		return ""
	case c.Message == "":
		return ": " + c.Reason
	case c.Reason == "":
		return ": " + c.Message
	default:
		return ": " + c.Reason + ": " + c.Message
	}
}

func controlPlaneReplicas(in *input) outcome {
	members, servers := len(in.component(snapshot.ComponentEtcd)), len(in.component(snapshot.ComponentAPIServer))
	if servers == 0 && members == 0 {
		return notApplicable("%s", hosted)
	}
	var r report
	cluster := Object{Kind: "Cluster", Name: in.Cluster}
	if members > 0 && members < 3 {
		r.add(Medium, cluster, fmt.Sprintf("%d etcd members", members), "at least 3", "the loss of one etcd member stops the cluster")
	} else if members%2 == 0 && members > 0 {
		r.add(Medium, cluster, fmt.Sprintf("%d etcd members", members), "an odd number", "the last etcd member adds load and no safety")
	}
	if servers == 1 {
		r.add(Medium, cluster, "1 API server", "at least 2", "the loss of the API server stops the cluster")
	}
	return r.outcome("%d API servers, %d etcd members", servers, members)
}

func controlPlaneRestarts(in *input) outcome {
	var r report
	seen := 0
	now := in.now(snapshot.Pods)
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.Component == nil || finished(pod) {
			continue
		}
		seen++
		if !ready(pod) && now.Sub(pod.Created) > time.Minute {
			r.add(High, podObject(pod), "Ready="+readyStatus(pod), "Ready=True", "control plane pod is not ready%s", because(pod.Ready))
		}
		for _, c := range pod.Containers {
			if c.Restarts > 0 && c.LastExit != nil && now.Sub(c.LastExit.Finished) < 24*time.Hour {
				severity := Medium // one restart that is over is a warning, not a reason to stop
				if c.Restarts >= 3 && crashedLately(&c, now) {
					severity = High
				}
				r.add(severity, podObject(pod), plural(int64(c.Restarts), "restart"), "none within 24 h",
					"container %s ended %s ago with exit code %d (%s)", c.Name, age(now.Sub(c.LastExit.Finished)), c.LastExit.Code, c.LastExit.Reason)
			}
		}
	}
	if seen == 0 {
		return notApplicable("%s", hosted)
	}
	return r.outcome("%d control plane pods", seen)
}

func readyStatus(pod *snapshot.Pod) string {
	if pod.Ready == nil {
		return "missing"
	}
	return pod.Ready.Status
}

func leaderLeases(in *input) outcome {
	const limit = 30 * time.Second
	var r report
	var seen, absent []string
	now := in.now(snapshot.SystemLeases)
	for _, component := range []string{snapshot.ComponentController, snapshot.ComponentScheduler} {
		lease := in.lease(kubeSystem, component)
		target := Object{"Lease", kubeSystem, component}
		switch {
		case lease == nil || lease.Renewed == nil:
			if !in.electsLeader(component) {
				absent = append(absent, component)
				continue
			}
			r.add(Critical, target, "missing", "renewed within 30 s", "%s has pods but no leader lease: it has never led", component)
		case now.Sub(*lease.Renewed) > limit:
			r.add(Critical, target, age(now.Sub(*lease.Renewed)), "30 s", "%s has no live leader; the last one was %s", component, lease.Holder)
		}
		seen = append(seen, component)
	}
	if len(seen) == 0 {
		return notApplicable("no leader lease is visible: the control plane is hosted, or runs without leader election")
	}
	note := strings.Join(seen, " and ")
	if len(absent) > 0 {
		note += "; no lease and no pod of " + strings.Join(absent, " and ")
	}
	return r.outcome("leases of %s", note)
}

func (in *input) lease(namespace, name string) *snapshot.Lease {
	for i := range in.Leases {
		if lease := &in.Leases[i]; lease.Namespace == namespace && lease.Name == name {
			return lease
		}
	}
	return nil
}

// electsLeader is true when pods of the component are there and take part in
// leader election.
func (in *input) electsLeader(component string) bool {
	for _, pod := range in.component(component) {
		if !pod.Component.NoLeaderElection {
			return true
		}
	}
	return false
}

// reachedHosts are the addresses at which any component answered: a refusal
// there is the component's own, not the network's.
func (in *input) reachedHosts() map[string]bool {
	hosts := map[string]bool{}
	for _, probe := range in.Probes {
		if probe.Problem == nil || probe.Status != 0 || strings.HasPrefix(probe.Host, "127.") || probe.Host == "::1" {
			hosts[probe.Host] = true
		}
	}
	return hosts
}

func componentHealth(in *input) outcome {
	var r report
	var answered, local int
	var unseen []string
	hosts := in.reachedHosts()
	for _, component := range []string{snapshot.ComponentController, snapshot.ComponentScheduler} {
		var bad []snapshot.Probe
		good := 0
		for _, probe := range in.Probes {
			switch {
			case probe.Component != component:
			case probe.Problem == nil && probe.OK:
				good++
			case probe.Problem == nil, !probe.NodeLocal && hosts[probe.Host]:
				bad = append(bad, probe)
			case probe.NodeLocal:
				local++
			default:
				unseen = append(unseen, probe.Pod+" ("+probe.Problem.String()+")")
			}
		}
		severity := Critical
		if good > 0 {
			severity = High
		}
		for _, probe := range bad {
			r.add(severity, Object{"Pod", kubeSystem, probe.Pod}, answer(probe), "200 ok", "%s does not say that it is healthy at %s", component, probe.URL)
		}
		answered += good + len(bad)
	}
	switch {
	case len(r.findings) > 0 || answered > 0 && len(unseen) == 0:
		return r.outcome("%d instances answered, %d answer only on their own node", answered, local)
	case len(unseen) > 0:
		return unknown("not reachable from here: %s; inspect from where the control plane nodes can be reached", strings.Join(unseen, ", "))
	case local > 0:
		return notApplicable("%d instances answer only on their node's loopback; CP-06 and CP-07 watch them instead", local)
	default:
		return notApplicable("%s", hosted)
	}
}

func answer(probe snapshot.Probe) string {
	if probe.Problem != nil {
		return probe.Problem.String()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", probe.Status, probe.Body))
}

func versionSkew(in *input) outcome {
	server, ok := minor(in.KubernetesVersion)
	if !ok {
		return unknown("the API server's version %q is not of the form vMAJOR.MINOR", in.KubernetesVersion)
	}
	var r report
	seen, unread := 0, 0
	for i := range in.Nodes {
		node := &in.Nodes[i]
		kubelet, ok := minor(node.Kubelet)
		if !ok {
			unread++
			continue
		}
		seen++
		if kubelet > server {
			r.add(High, nodeObject(node.Name), node.Kubelet, "at most "+in.KubernetesVersion, "kubelet is newer than the API server")
		} else if server-kubelet > 3 {
			r.add(High, nodeObject(node.Name), node.Kubelet, fmt.Sprintf("at least v1.%d", server-3), "kubelet is too old for the API server %s", in.KubernetesVersion)
		}
	}
	if seen == 0 {
		return notApplicable("no node reports a kubelet version of the form vMAJOR.MINOR")
	}
	return r.outcome("%d nodes compared with %s, %d without a readable version", seen, in.KubernetesVersion, unread)
}

// minor reads the minor version of v1.MINOR...
func minor(version string) (int, bool) {
	rest, ok := strings.CutPrefix(version, "v1.")
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ".")
	digits = strings.TrimRight(digits, "+")
	n, err := strconv.Atoi(digits)
	return n, err == nil
}
