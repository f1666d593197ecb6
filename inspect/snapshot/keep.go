package snapshot

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// messageLimit bounds condition messages, which may hold anything.
const messageLimit = 240

// CordonNote is the annotation in which an owner says why a node is cordoned.
const CordonNote = "fleetwatch.io/cordon-note"

func keepMeta(object *metav1.ObjectMeta) Meta {
	return Meta{
		Namespace: object.Namespace, Name: object.Name, Labels: object.Labels,
		Created: object.CreationTimestamp.UTC(), Deleted: utc(object.DeletionTimestamp),
	}
}

// bare is keepMeta without labels, for kinds whose labels no check reads.
func bare(object *metav1.ObjectMeta) Meta {
	meta := keepMeta(object)
	meta.Labels = nil
	return meta
}

func keepOwner(object *metav1.ObjectMeta) *Owner {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return &Owner{Kind: owner.Kind, Name: owner.Name}
	}
	return nil
}

func utc(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	at := t.UTC()
	return &at
}

func utcOrZero(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func condition[T, S ~string](kind T, status S, reason, message string, changed metav1.Time) Condition {
	return Condition{
		Type: string(kind), Status: string(status), Reason: reason,
		Message: shorten(message, messageLimit), Changed: utcOrZero(changed),
	}
}

func keepConditions(conditions []metav1.Condition) []Condition {
	return each(conditions, func(c *metav1.Condition) Condition {
		return condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
	})
}

func each[T, K any](items []T, keep func(*T) K) []K {
	if len(items) == 0 {
		return nil
	}
	kept := make([]K, len(items))
	for i := range items {
		kept[i] = keep(&items[i])
	}
	return kept
}

func keepNode(n *corev1.Node) Node {
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	return Node{
		Meta:          keepMeta(&n.ObjectMeta),
		Unschedulable: n.Spec.Unschedulable,
		CordonNote:    shorten(n.Annotations[CordonNote], messageLimit),
		Taints: each(n.Spec.Taints, func(t *corev1.Taint) Taint {
			return Taint{Key: t.Key, Effect: string(t.Effect), Added: utc(t.TimeAdded)}
		}),
		Conditions: each(n.Status.Conditions, func(c *corev1.NodeCondition) Condition {
			kept := condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
			kept.Heartbeat = utcOrZero(c.LastHeartbeatTime)
			return kept
		}),
		Allocatable: amounts(n.Status.Allocatable),
		PodCIDRs:    cidrs,
		Kubelet:     n.Status.NodeInfo.KubeletVersion,
	}
}

func keepDeployment(d *appsv1.Deployment) Workload {
	return Workload{
		Meta: keepMeta(&d.ObjectMeta), Kind: KindDeployment,
		Desired: one(d.Spec.Replicas), Ready: d.Status.ReadyReplicas,
		Available: d.Status.AvailableReplicas, Updated: d.Status.UpdatedReplicas,
		Paused: d.Spec.Paused, Selector: d.Spec.Selector, TemplateLabels: d.Spec.Template.Labels,
		Conditions: each(d.Status.Conditions, func(c *appsv1.DeploymentCondition) Condition {
			return condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
		}),
	}
}

func keepStatefulSet(s *appsv1.StatefulSet) Workload {
	return Workload{
		Meta: keepMeta(&s.ObjectMeta), Kind: KindStatefulSet,
		Desired: one(s.Spec.Replicas), Ready: s.Status.ReadyReplicas,
		Available: s.Status.AvailableReplicas, Updated: s.Status.UpdatedReplicas,
		Selector: s.Spec.Selector, TemplateLabels: s.Spec.Template.Labels,
	}
}

func keepDaemonSet(d *appsv1.DaemonSet) Workload {
	return Workload{
		Meta: keepMeta(&d.ObjectMeta), Kind: KindDaemonSet,
		Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady,
		Available: d.Status.NumberAvailable, Updated: d.Status.UpdatedNumberScheduled,
		Selector: d.Spec.Selector, TemplateLabels: d.Spec.Template.Labels,
	}
}

// one reads a replica count whose default is one.
func one(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

func keepJob(j *batchv1.Job) Job {
	return Job{
		Meta: bare(&j.ObjectMeta), Owner: keepOwner(&j.ObjectMeta),
		Suspended: j.Spec.Suspend != nil && *j.Spec.Suspend,
		Active:    j.Status.Active, Started: utc(j.Status.StartTime),
		Conditions: each(j.Status.Conditions, func(c *batchv1.JobCondition) Condition {
			return condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
		}),
	}
}

func keepCronJob(c *batchv1.CronJob) CronJob {
	return CronJob{Meta: bare(&c.ObjectMeta), Suspended: c.Spec.Suspend != nil && *c.Spec.Suspend}
}

func keepLease(l *coordinationv1.Lease) Lease {
	lease := Lease{Meta: bare(&l.ObjectMeta)}
	if l.Spec.HolderIdentity != nil {
		lease.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		at := l.Spec.RenewTime.UTC()
		lease.Renewed = &at
	}
	return lease
}
