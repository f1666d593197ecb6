package checks

import (
	"fmt"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func counts(w *snapshot.Workload) string {
	return fmt.Sprintf("%d of %d available", w.Available, w.Desired)
}

func plural(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// lastRun is how the last run of a container ended, as the end of a sentence.
func lastRun(c *snapshot.Container) string {
	exit := c.Exit
	if exit == nil {
		exit = c.LastExit
	}
	if exit == nil {
		return ""
	}
	return fmt.Sprintf(": last exit code %d (%s)", exit.Code, exit.Reason)
}

// waiting is what a pod's containers wait for, as the end of a sentence.
func waiting(pod *snapshot.Pod) string {
	for _, c := range pod.Containers {
		if c.Waiting != "" && c.Waiting != "PodInitializing" {
			return fmt.Sprintf(": container %s: %s", c.Name, c.Waiting)
		}
	}
	return ""
}

func disruptionBudgets(in *input) outcome {
	if len(in.PDBs) == 0 {
		return notApplicable("there is no disruption budget")
	}
	var r report
	now := in.now(snapshot.PDBs)
	for i := range in.PDBs {
		budget := &in.PDBs[i]
		target := object("PodDisruptionBudget", budget.Meta)
		if allowed := find(budget.Conditions, "DisruptionAllowed"); allowed != nil && allowed.Reason == "SyncFailed" {
			r.add(Medium, target, "not computed", "computed", "the budget cannot be computed, so no pod can be evicted%s", because(allowed))
			continue
		}
		if budget.Expected == 0 || budget.Allowed > 0 || now.Sub(budget.Created) < time.Minute {
			continue
		}
		value := fmt.Sprintf("%d of %d healthy, %d required", budget.Healthy, budget.Expected, budget.Desired)
		if budget.Desired >= budget.Expected {
			r.add(High, target, value, "1 disruption allowed", "no pod may ever be evicted: node drains will hang")
			continue
		}
		r.add(Medium, target, value, "1 disruption allowed", "no pod may be evicted until more are healthy")
	}
	return r.outcome("%d budgets", len(in.PDBs))
}

func autoscalers(in *input) outcome {
	if len(in.HPAs) == 0 {
		return notApplicable("there is no autoscaler")
	}
	known := map[Object]bool{}
	for i := range in.Workloads {
		known[workloadObject(&in.Workloads[i])] = true
	}
	var r report
	now := in.now(snapshot.HPAs)
	for i := range in.HPAs {
		hpa := &in.HPAs[i]
		target := object("HorizontalPodAutoscaler", hpa.Meta)
		scales := Object{hpa.Target.Kind, hpa.Namespace, hpa.Target.Name}
		builtIn := scales.Kind == snapshot.KindDeployment || scales.Kind == snapshot.KindStatefulSet
		if builtIn && !known[scales] {
			r.add(High, target, scales.Path(), "exists", "the target of the autoscaler does not exist")
			continue
		}
		for _, kind := range []string{"AbleToScale", "ScalingActive"} {
			c := find(hpa.Conditions, kind)
			if c != nil && c.Status == "False" && c.Reason != "ScalingDisabled" && now.Sub(c.Changed) > settled {
				r.add(High, target, kind+"=False for "+age(now.Sub(c.Changed)), "15 min", "the autoscaler does not work%s", because(c))
			}
		}
		limited := find(hpa.Conditions, "ScalingLimited")
		if hpa.Current >= hpa.Max && hpa.Max > hpa.Min && limited != nil && limited.Status == "True" &&
			limited.Reason == "TooManyReplicas" && now.Sub(limited.Changed) > settled {
			r.add(High, target, fmt.Sprintf("%d of %d", hpa.Current, hpa.Max), "below the maximum",
				"wants more replicas than its maximum for %s", age(now.Sub(limited.Changed)))
		}
	}
	return r.outcome("%d autoscalers", len(in.HPAs))
}

func jobs(in *input) outcome {
	if len(in.Jobs) == 0 {
		return notApplicable("there is no job")
	}
	newest := map[string]*snapshot.Job{} // the latest finished run of each CronJob
	for i := range in.Jobs {
		job := &in.Jobs[i]
		if key := cronKey(job); key != "" && (isTrue(job.Conditions, "Failed") || isTrue(job.Conditions, "Complete")) {
			if known := newest[key]; known == nil || job.Created.After(known.Created) {
				newest[key] = job
			}
		}
	}
	var r report
	now := in.now(snapshot.Jobs)
	for i := range in.Jobs {
		job := &in.Jobs[i]
		target := object("Job", job.Meta)
		if failed := find(job.Conditions, "Failed"); failed != nil && failed.Status == "True" {
			if key := cronKey(job); key == "" || newest[key] == job {
				r.add(Medium, target, "failed "+age(now.Sub(failed.Changed))+" ago", "succeeded", "the job has failed%s", because(failed))
			}
			continue
		}
		if job.Active > 0 && !job.Suspended && job.Started != nil && now.Sub(*job.Started) > 12*time.Hour {
			r.add(Low, target, "running for "+age(now.Sub(*job.Started)), "12 h", "the job does not come to an end")
		}
	}
	return r.outcome("%d jobs", len(in.Jobs))
}

func cronKey(job *snapshot.Job) string {
	if job.Owner == nil || job.Owner.Kind != "CronJob" {
		return ""
	}
	return job.Namespace + "/" + job.Owner.Name
}

func terminatingPods(in *input) outcome {
	var r report
	now := in.now(snapshot.Pods)
	evicted := map[string]int{}
	total := 0
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.Phase == "Failed" && pod.Reason == "Evicted" {
			evicted[pod.Namespace]++
			total++
		}
		// deletionTimestamp already holds the grace period.
		if pod.Deleted != nil && now.Sub(*pod.Deleted) > 10*time.Minute {
			r.add(Medium, podObject(pod), age(now.Sub(*pod.Deleted))+" past its grace period", "10 min", "the pod on node %s does not end", pod.Node)
		}
	}
	if total > 100 {
		most := ""
		for namespace, count := range evicted {
			if count > evicted[most] || count == evicted[most] && namespace < most {
				most = namespace
			}
		}
		r.add(Medium, Object{Kind: "Namespace", Name: most}, fmt.Sprintf("%d evicted pods", total), "100", "evicted pods pile up; most of them here")
	}
	return r.outcome("%d pods", len(in.Pods))
}

func volumes(in *input) outcome {
	if len(in.PVCs)+len(in.PVs) == 0 {
		return notApplicable("there is no volume")
	}
	wanted := map[string]string{}
	for i := range in.Pods {
		pod := &in.Pods[i]
		for _, claim := range pod.Claims {
			if !finished(pod) {
				wanted[pod.Namespace+"/"+claim] = pod.Name
			}
		}
	}
	var r report
	now := in.now(snapshot.PVCs)
	for i := range in.PVCs {
		claim := &in.PVCs[i]
		target := object("PersistentVolumeClaim", claim.Meta)
		since := now.Sub(claim.Created)
		pod, isWanted := wanted[claim.Namespace+"/"+claim.Name]
		switch {
		case claim.Phase == "Lost":
			r.add(High, target, "Lost", "Bound", "the volume %s behind the claim is gone", claim.Volume)
		case claim.Phase == "Pending" && isWanted && since > settled:
			// Without a pod it may well wait for its first consumer.
			r.add(High, target, "pending for "+age(since), "15 min", "pod %s waits for the claim", pod)
		}
	}
	for i := range in.PVs {
		if volume := &in.PVs[i]; volume.Phase == "Failed" {
			r.add(High, object("PersistentVolume", volume.Meta), "Failed", "Bound or Available", "the volume of claim %s has failed: %s", volume.Claim, volume.Message)
		}
	}
	return r.outcome("%d claims, %d volumes", len(in.PVCs), len(in.PVs))
}
