package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
)

// readiness makes pods Ready again that the node lifecycle controller marked
// otherwise while their node did not report: a kubelet that reports again also
// writes the statuses of its pods, which KWOK does not.
type readiness struct {
	client kubernetes.Interface
	pods   listers.PodLister
	nodes  listers.NodeLister
	log    *slog.Logger
}

// restoreTimeout bounds one write.
const restoreTimeout = 5 * time.Second

func (r *readiness) run(ctx context.Context, synced ...cache.InformerSynced) error {
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	tick := time.NewTicker(2 * reconcileEvery)
	defer tick.Stop()
	told := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := r.round(ctx)
		if err != nil && !told && ctx.Err() == nil {
			r.log.Warn("pods are not made ready again", "err", err)
		}
		told = err != nil
	}
}

// round restores what it can and stops at the first error that is not the
// pod's own: the API server is away then, and the next round tries again.
func (r *readiness) round(ctx context.Context) error {
	pods, err := r.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, pod := range pods {
		next, ok := readyAgain(pod, metav1.Now())
		if !ok {
			continue
		}
		node, err := r.nodes.Get(pod.Spec.NodeName)
		if err != nil || !reports(node) {
			continue
		}
		if err := r.write(ctx, next); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

func (r *readiness) write(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	_, err := r.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// reports says whether a node's kubelet is alive. A node whose heartbeat a
// fault has stopped is Ready for a while yet, and its pods must not be touched
// when their marks are seen before the node's.
func reports(node *corev1.Node) bool {
	if node.Labels[content.LabelHeartbeat] == content.HeartbeatOff {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// readyAgain returns the pod as its kubelet would write it, and true, if only
// its conditions say that it is not Ready: it runs, all of its containers are
// ready and all of its readiness gates are open. Pods of real processes, and
// those that misbehave, are written by others.
func readyAgain(pod *corev1.Pod, now metav1.Time) (*corev1.Pod, bool) {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning ||
		pod.Labels[content.LabelProcess] != "" || pod.Labels[content.LabelBehaviour] != "" ||
		conditionOf(pod, corev1.PodReady).Status == corev1.ConditionTrue {
		return nil, false
	}
	if len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) {
		return nil, false
	}
	for _, s := range pod.Status.ContainerStatuses {
		if !s.Ready {
			return nil, false
		}
	}
	for _, gate := range pod.Spec.ReadinessGates {
		if conditionOf(pod, gate.ConditionType).Status != corev1.ConditionTrue {
			return nil, false
		}
	}
	next := pod.DeepCopy()
	for i := range next.Status.Conditions {
		c := &next.Status.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != corev1.ConditionTrue {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionTrue, "", "", now
		}
	}
	return next, true
}

// conditionOf returns the pod's condition of that type, or an empty one.
func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
