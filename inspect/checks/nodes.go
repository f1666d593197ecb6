package checks

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

var pressures = []string{"MemoryPressure", "DiskPressure", "PIDPressure"}

// badWhenTrue are the conditions of the node problem detector and of vendors
// whose True means trouble. Others, such as StorageReady=True, mean health or
// are not known: a condition that is not listed never fails a node.
var badWhenTrue = []string{
	"KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "FrequentKubeletRestart", "FrequentDockerRestart",
	"FrequentContainerdRestart", "FrequentUnregisterNetDevice", "KubeletUnhealthy", "ContainerRuntimeUnhealthy",
	"KubeletProblem", "RuntimeUnhealthy", "FDPressure", "ThreadPressure", "XfsShutdown", "CperHardwareErrorFatal",
}

func nodeChecks() []Check {
	nodes := []snapshot.Resource{snapshot.Nodes}
	both := []snapshot.Resource{snapshot.Nodes, snapshot.Pods}
	return []Check{
		{
			ID: "ND-01", Title: "Nodes are ready and send heartbeats", Category: Nodes, Severity: Critical,
			Reads: nodes, Also: []snapshot.Resource{snapshot.NodeLeases},
			Threshold: "not Ready with a stale lease (over 40 s) or for 15 min high, for 2 min medium; over 20 % of nodes critical",
			Source:    "kubernetes-mixin (KubeNodeNotReady), EKS",
			Remedy:    "Look at the kubelet of the named node; with many nodes at once look at the network and the API server first.",
			eval:      nodesReady,
		},
		{
			ID: "ND-03", Title: "Nodes are not under memory, disk or PID pressure", Category: Nodes, Severity: High, Reads: nodes,
			Threshold: "pressure for more than 10 min high, less medium", Source: "kubernetes-mixin (KubeNodePressure)",
			Remedy: "Free the named resource; pods are being evicted.",
			eval:   nodePressure,
		},
		{
			ID: "ND-04", Title: "The node problem detector reports no trouble", Category: Nodes, Severity: High, Reads: nodes,
			Threshold: "a known condition in its bad state with a heartbeat younger than 10 min", Source: "node-problem-detector, TKE NPDPlus",
			Remedy: "Confirm on the node before acting: these conditions do not always clear by themselves.",
			eval:   nodeProblems,
		},
		{
			ID: "ND-10", Title: "Nodes have room for more pods", Category: Nodes, Severity: High, Reads: both,
			Threshold: "over 95 % of the node's pod limit", Source: "kubernetes-mixin (KubeletTooManyPods)",
			Remedy: "Add nodes, or raise maxPods together with the pod CIDR.",
			eval:   podLimit,
		},
		{
			ID: "ND-13", Title: "No node is left cordoned", Category: Nodes, Severity: Medium, Reads: nodes,
			Threshold: "cordoned for more than 24 h without the annotation " + snapshot.CordonNote, Source: "popeye",
			Remedy: "Uncordon the node, remove it, or write down why: kubectl annotate node NODE " + snapshot.CordonNote + "='...'.",
			eval:   cordoned,
		},
		{
			ID: "ND-14", Title: "Nodes are not requested to the brim", Category: Nodes, Severity: Medium, Reads: both,
			Threshold: "requests over 90 % of allocatable CPU or memory", Source: "fleetwatch",
			Remedy: "Rebalance or add nodes: a rollout with surge will not fit here.",
			eval:   nodeRequests,
		},
	}
}

const leaseLimit = 40 * time.Second // the duration of a kubelet's lease

func nodesReady(in *input) outcome {
	if len(in.Nodes) == 0 {
		return notApplicable("the cluster has no nodes")
	}
	leases := map[string]time.Duration{}
	for i := range in.Leases {
		if lease := &in.Leases[i]; lease.Namespace == "kube-node-lease" && lease.Renewed != nil {
			leases[lease.Name] = in.now(snapshot.NodeLeases).Sub(*lease.Renewed)
		}
	}
	var r report
	now := in.now(snapshot.Nodes)
	for i := range in.Nodes {
		judgeNode(&r, &in.Nodes[i], now, leases)
	}
	if heavy := countHigh(r.findings); heavy*5 > len(in.Nodes) {
		for i := range r.findings {
			if r.findings[i].Severity == High {
				r.findings[i].Severity = Critical
				r.findings[i].Message += fmt.Sprintf("; %d of %d nodes are lost", heavy, len(in.Nodes))
			}
		}
	}
	note := ""
	if !in.read(snapshot.NodeLeases) {
		note = fmt.Sprintf("; without leases: %s", in.Reads[snapshot.NodeLeases].Problem)
	}
	return r.outcome("%d nodes%s", len(in.Nodes), note)
}

func judgeNode(r *report, node *snapshot.Node, now time.Time, leases map[string]time.Duration) {
	condition := find(node.Conditions, "Ready")
	stale, known := leases[node.Name]
	known = known && stale > leaseLimit
	if condition != nil && condition.Status == "True" {
		if known {
			r.add(High, nodeObject(node.Name), "lease "+age(stale)+" old", "40 s", "heartbeats have stopped; the node still counts as ready")
		}
		return
	}
	since := now.Sub(node.Created)
	if condition != nil && !condition.Changed.IsZero() {
		since = now.Sub(condition.Changed)
	}
	value := "Ready=" + statusOf(node.Conditions, "Ready") + " for " + age(since)
	switch {
	case known || condition != nil && condition.Status == "Unknown" || since >= 15*time.Minute:
		r.add(High, nodeObject(node.Name), value, "Ready=True", "node is not ready%s", because(condition))
	case since >= 2*time.Minute:
		r.add(Medium, nodeObject(node.Name), value, "Ready=True", "node is not ready yet%s", because(condition))
	}
}

func countHigh(findings []Finding) int {
	count := 0
	for _, finding := range findings {
		if finding.Severity == High {
			count++
		}
	}
	return count
}

func nodePressure(in *input) outcome {
	if len(in.Nodes) == 0 {
		return notApplicable("the cluster has no nodes")
	}
	var r report
	now := in.now(snapshot.Nodes)
	for i := range in.Nodes {
		node := &in.Nodes[i]
		for _, kind := range pressures {
			c := find(node.Conditions, kind)
			if c == nil || c.Status != "True" {
				continue
			}
			severity, since := High, now.Sub(c.Changed)
			if since < 10*time.Minute {
				severity = Medium
			}
			r.add(severity, nodeObject(node.Name), kind+" for "+age(since), "none", "node is under pressure%s", because(c))
		}
	}
	return r.outcome("%d nodes", len(in.Nodes))
}

func nodeProblems(in *input) outcome {
	var r report
	now := in.now(snapshot.Nodes)
	seen, stale := 0, 0
	for i := range in.Nodes {
		node := &in.Nodes[i]
		for j := range node.Conditions {
			c := &node.Conditions[j]
			// The cloud or network plugin sets NetworkUnavailable once, without heartbeats.
			if c.Type == "NetworkUnavailable" {
				seen++
				if c.Status == "True" && now.Sub(c.Changed) > 5*time.Minute {
					r.add(High, nodeObject(node.Name), c.Type+"=True", c.Type+"=False", "node has no pod network%s", because(c))
				}
				continue
			}
			if !slices.Contains(badWhenTrue, c.Type) {
				continue
			}
			seen++
			if c.Status != "True" {
				continue
			}
			if now.Sub(c.Heartbeat) > 10*time.Minute {
				stale++
				continue
			}
			r.add(High, nodeObject(node.Name), c.Type+"=True", c.Type+"=False", "node problem%s", because(c))
		}
	}
	if seen == 0 {
		return notApplicable("no node has conditions of the node problem detector")
	}
	if stale > 0 && len(r.findings) == 0 {
		return unknown("%d bad conditions have no heartbeat within 10 min: the detector that set them is gone", stale)
	}
	return r.outcome("%d conditions, %d of them bad but stale", seen, stale)
}

// usage adds up what the pods of each node take.
func usage(in *input) map[string]snapshot.Resources {
	used := map[string]snapshot.Resources{}
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.Node == "" || finished(pod) {
			continue
		}
		total := used[pod.Node]
		total.CPUMilli += pod.Requests.CPUMilli
		total.Memory += pod.Requests.Memory
		total.Pods++
		used[pod.Node] = total
	}
	return used
}

func podLimit(in *input) outcome {
	if len(in.Nodes) == 0 {
		return notApplicable("the cluster has no nodes")
	}
	used := usage(in)
	var r report
	for i := range in.Nodes {
		node := &in.Nodes[i]
		limit := float64(node.Allocatable.Pods)
		if count := float64(used[node.Name].Pods); limit > 0 && count/limit > 0.95 {
			r.add(High, nodeObject(node.Name), percent(count, limit), "95 %", "%.0f of %.0f pods", count, limit)
		}
	}
	return r.outcome("%d nodes", len(in.Nodes))
}

func cordoned(in *input) outcome {
	if len(in.Nodes) == 0 {
		return notApplicable("the cluster has no nodes")
	}
	const limit = 24 * time.Hour
	var r report
	now := in.now(snapshot.Nodes)
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if !node.Unschedulable || node.CordonNote != "" {
			continue
		}
		since := "for an unknown time"
		for _, taint := range node.Taints {
			if taint.Key != "node.kubernetes.io/unschedulable" || taint.Added == nil {
				continue
			}
			since = "for " + age(now.Sub(*taint.Added))
			if now.Sub(*taint.Added) <= limit {
				since = ""
			}
		}
		if since != "" {
			r.add(Medium, nodeObject(node.Name), "cordoned "+since, "24 h", "node takes no pods and nobody wrote down why")
		}
	}
	return r.outcome("%d nodes", len(in.Nodes))
}

func nodeRequests(in *input) outcome {
	if len(in.Nodes) == 0 {
		return notApplicable("the cluster has no nodes")
	}
	used := usage(in)
	var r report
	for i := range in.Nodes {
		node := &in.Nodes[i]
		for _, amount := range []struct {
			name      string
			used, all int64
		}{
			{"CPU", used[node.Name].CPUMilli, node.Allocatable.CPUMilli},
			{"memory", used[node.Name].Memory, node.Allocatable.Memory},
		} {
			if amount.all > 0 && float64(amount.used)/float64(amount.all) > 0.9 {
				r.add(Medium, nodeObject(node.Name), percent(float64(amount.used), float64(amount.all)), "90 %", "%s requests of the node's pods", amount.name)
			}
		}
	}
	return r.outcome("%d nodes", len(in.Nodes))
}
