package checks

import (
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// CriticalLabel marks a workload whose weaknesses count as high.
const CriticalLabel = "fleetwatch.io/critical"

// settled is how long something may be unfinished before it counts as stuck.
const settled = 15 * time.Minute

var workloadKinds = []snapshot.Resource{snapshot.Deployments, snapshot.StatefulSets, snapshot.DaemonSets}

func workloadReads(more ...snapshot.Resource) []snapshot.Resource {
	return append(append([]snapshot.Resource{}, workloadKinds...), more...)
}

func workloadChecks() []Check {
	return []Check{
		{
			ID: "WL-01", Title: "Workloads have all of their replicas", Category: Workloads, Severity: High,
			Reads:     workloadReads(snapshot.Pods),
			Threshold: "replicas missing for more than 15 min, or a rollout past its deadline", Source: "kubernetes-mixin (KubeDeploymentReplicasMismatch)",
			Remedy: "Look at the workload's newest pods and events: kubectl -n NAMESPACE describe KIND NAME.",
			eval:   replicas,
		},
		{
			ID: "WL-02", Title: "No container crash-loops", Category: Workloads, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Pods},
			Threshold: "3 restarts and CrashLoopBackOff or another crash within 10 min; waiting for more than 1 h", Source: "kubernetes-mixin (KubePodCrashLooping)",
			Remedy: "Read the log of the run that ended: kubectl -n NAMESPACE logs --previous POD.",
			eval:   crashLoops,
		},
		{
			ID: "WL-03", Title: "No pod waits for a place or a start", Category: Workloads, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Pods},
			Threshold: "pending for more than 15 min", Source: "kubernetes-mixin (KubePodNotReady)",
			Remedy: "The message names what is missing: capacity, a taint's toleration, a volume, an image.",
			eval:   pendingPods,
		},
		{
			ID: "WL-05", Title: "Serving workloads have more than one replica", Category: Workloads, Severity: High,
			Reads:     workloadReads(snapshot.Pods, snapshot.Services, snapshot.Nodes),
			Threshold: "one replica, or all on one node: high with the label " + CriticalLabel + "=true, else low", Source: "polaris, kube-jarvis",
			Remedy: "Run at least two replicas and spread them over nodes and zones (topologySpreadConstraints).",
			eval:   singleReplicas,
		},
		{
			ID: "WL-06", Title: "Disruption budgets allow a node to be drained", Category: Workloads, Severity: High,
			Reads:     []snapshot.Resource{snapshot.PDBs},
			Threshold: "a budget that no state can satisfy high, no disruption allowed now medium", Source: "polaris (pdbDisruptionsIsZero), popeye",
			Remedy: "Let minAvailable be below the number of replicas, or add replicas.",
			eval:   disruptionBudgets,
		},
		{
			ID: "WL-07", Title: "Autoscalers work and have room", Category: Workloads, Severity: High,
			Reads:     workloadReads(snapshot.HPAs),
			Threshold: "target missing, inactive or at its maximum for more than 15 min", Source: "kubernetes-mixin (KubeHpaMaxedOut)",
			Remedy: "Raise the maximum before the event, or repair the metrics the autoscaler cannot read.",
			eval:   autoscalers,
		},
		{
			ID: "WL-08", Title: "Jobs succeed", Category: Workloads, Severity: Medium,
			Reads:     []snapshot.Resource{snapshot.Jobs},
			Threshold: "failed (for a CronJob: its latest run), or running for more than 12 h", Source: "kubernetes-mixin (KubeJobFailed)",
			Remedy: "Read the pods' logs; remove the failed Job once it is understood.",
			eval:   jobs,
		},
		{
			ID: "WL-09", Title: "No pod hangs in termination and evicted pods are cleaned up", Category: Workloads, Severity: Medium,
			Reads:     []snapshot.Resource{snapshot.Pods},
			Threshold: "terminating 10 min past its grace period, or more than 100 evicted pods", Source: "fleetwatch",
			Remedy: "Look at the node's kubelet and at finalizers; force deletion only when the node is known to be off.",
			eval:   terminatingPods,
		},
		{
			ID: "WL-12", Title: "Volumes are bound", Category: Workloads, Severity: High,
			Reads:     []snapshot.Resource{snapshot.PVCs, snapshot.PVs, snapshot.Pods},
			Threshold: "claim lost, or pending for more than 15 min while a pod wants it; volume failed", Source: "kubernetes-mixin (KubePersistentVolumeErrors)",
			Remedy: "Look at the claim's events: storage class, provisioner and quota.",
			eval:   volumes,
		},
	}
}

func replicas(in *input) outcome {
	if len(in.Workloads) == 0 {
		return notApplicable("the cluster runs no workload")
	}
	var r report
	for i := range in.Workloads {
		w := &in.Workloads[i]
		if progress := find(w.Conditions, "Progressing"); progress != nil && progress.Reason == "ProgressDeadlineExceeded" {
			r.add(High, workloadObject(w), counts(w), "complete", "the rollout has passed its deadline%s", because(progress))
			continue
		}
		if w.Desired <= w.Available {
			continue
		}
		if since, stuck := in.shortSince(w); stuck {
			r.add(High, workloadObject(w), counts(w), "complete within 15 min", "replicas are missing for %s", age(since))
		}
	}
	return r.outcome("%d workloads", len(in.Workloads))
}

// shortSince says for how long a workload has been short of replicas, from
// its pods where there are any, and whether that is long enough to be stuck.
func (in *input) shortSince(w *snapshot.Workload) (time.Duration, bool) {
	now := in.now(snapshot.Pods)
	var longest time.Duration
	live, young := int32(0), false
	for _, pod := range in.podsOf(w) {
		if pod.Deleted != nil || finished(pod) {
			continue
		}
		live++
		young = young || now.Sub(pod.Created) < settled
		if ready(pod) {
			continue
		}
		since := pod.Created
		if pod.Ready != nil && pod.Ready.Changed.After(since) {
			since = pod.Ready.Changed
		}
		longest = max(longest, now.Sub(since))
	}
	if longest > settled {
		return longest, true
	}
	if live >= w.Desired || young {
		return 0, false // the missing ones are starting, or a rollout goes on
	}
	since := w.Created
	for _, kind := range []string{"ReplicaFailure", "Available"} {
		if c := find(w.Conditions, kind); c != nil && (c.Status == "True") == (kind == "ReplicaFailure") {
			since = c.Changed
			break
		}
	}
	return now.Sub(since), now.Sub(since) > settled
}

func crashLoops(in *input) outcome {
	if len(in.Pods) == 0 {
		return notApplicable("the cluster runs no pod")
	}
	var r report
	now := in.now(snapshot.Pods)
	for i := range in.Pods {
		pod := &in.Pods[i]
		if finished(pod) {
			continue
		}
		for _, c := range pod.Containers {
			switch {
			case c.Restarts >= 3 && (c.Waiting == "CrashLoopBackOff" || crashedLately(&c, now)):
				r.add(High, podObject(pod), plural(int64(c.Restarts), "restart"), "3 restarts", "container %s crash-loops%s", c.Name, lastRun(&c))
			case c.Waiting != "" && c.Waiting != "PodInitializing" && c.Waiting != "ContainerCreating" && now.Sub(pod.Created) > time.Hour && c.Restarts < 3:
				r.add(High, podObject(pod), c.Waiting, "1 h", "container %s waits; the pod is %s old", c.Name, age(now.Sub(pod.Created)))
			}
		}
	}
	return r.outcome("%d pods", len(in.Pods))
}

// crashedLately finds a crash loop between two waits: the container runs, or
// has just ended, and the run before was short, failed and ended a moment ago.
func crashedLately(c *snapshot.Container, now time.Time) bool {
	const lately = 10 * time.Minute
	for _, exit := range []*snapshot.Exit{c.Exit, c.LastExit} {
		if exit != nil && exit.Code != 0 && now.Sub(exit.Finished) < lately && exit.Finished.Sub(exit.Started) < lately {
			return true
		}
	}
	return false
}

func pendingPods(in *input) outcome {
	if len(in.Pods) == 0 {
		return notApplicable("the cluster runs no pod")
	}
	var r report
	now := in.now(snapshot.Pods)
	for i := range in.Pods {
		pod := &in.Pods[i]
		since := now.Sub(pod.Created)
		if pod.Phase != "Pending" || pod.Deleted != nil || since <= settled {
			continue
		}
		if pod.Scheduled != nil && pod.Scheduled.Reason == "SchedulingGated" {
			continue
		}
		what := "is bound to node " + pod.Node + " and does not start" + waiting(pod)
		if pod.Node == "" {
			what = "has no node" + because(pod.Scheduled)
		}
		r.add(High, podObject(pod), "pending for "+age(since), "15 min", "pod %s", what)
	}
	return r.outcome("%d pods", len(in.Pods))
}

func singleReplicas(in *input) outcome {
	var r report
	seen := 0
	for i := range in.Workloads {
		w := &in.Workloads[i]
		critical := w.Labels[CriticalLabel] == "true"
		if w.Kind == snapshot.KindDaemonSet || w.Desired == 0 || !critical && !in.served(w) {
			continue
		}
		seen++
		severity := Low
		if critical {
			severity = High
		}
		if w.Desired == 1 {
			r.add(severity, workloadObject(w), "1 replica", "2", "one lost pod stops it")
			continue
		}
		if node, alone := in.onOneNode(w); alone && len(in.Nodes) > 1 {
			r.add(severity, workloadObject(w), counts(w)+" on one node", "2 nodes", "all replicas run on node %s", node)
		}
	}
	if seen == 0 {
		return notApplicable("no workload stands behind a service or carries the label %s", CriticalLabel)
	}
	return r.outcome("%d serving workloads", seen)
}

// served is true when a service of the namespace selects the workload's pods.
func (in *input) served(w *snapshot.Workload) bool {
	return slices.ContainsFunc(in.selecting[w.Namespace], func(selector map[string]string) bool {
		return subset(selector, w.TemplateLabels)
	})
}

func subset(selector, labels map[string]string) bool {
	for name, value := range selector {
		if have, ok := labels[name]; !ok || have != value {
			return false
		}
	}
	return true
}

// onOneNode is true when a workload has several ready pods, all on one node.
func (in *input) onOneNode(w *snapshot.Workload) (string, bool) {
	nodes := map[string]bool{}
	count, name := 0, ""
	for _, pod := range in.podsOf(w) {
		if ready(pod) && pod.Deleted == nil {
			count++
			name = pod.Node
			nodes[pod.Node] = true
		}
	}
	return name, count > 1 && len(nodes) == 1
}
