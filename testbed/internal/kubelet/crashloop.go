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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
)

const (
	crashEvery = 10 * time.Second // from one BackOff event to the next
	crashRun   = time.Second      // how long the container lives each time
)

// crashLoops runs the pods that crash again and again. A container lives for
// crashRun, then ends with code 1; its restart is put off, which the kubelet
// reports by a BackOff event; after crashEvery it starts again. The real
// kubelet's waits double up to five minutes; these stay short, so that a
// watcher sees many occurrences.
type crashLoops struct {
	client   kubernetes.Interface
	pods     listers.PodLister
	nodes    listers.NodeLister
	recorder func(node string) record.EventRecorder
	log      *slog.Logger
	next     map[types.UID]time.Time // when the pod's state changes next; owned by run
}

func (c *crashLoops) run(ctx context.Context, synced cache.InformerSynced) error {
	c.next = map[types.UID]time.Time{}
	selector := labels.SelectorFromSet(labels.Set{content.LabelBehaviour: content.BehaviourCrashLoop})
	tick := time.NewTicker(reconcileEvery / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !synced() {
			continue
		}
		pods, err := c.pods.List(selector)
		if err != nil {
			return err
		}
		live := map[types.UID]time.Time{}
		for _, pod := range pods {
			if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
				continue
			}
			if next := c.next[pod.UID]; time.Now().Before(next) {
				live[pod.UID] = next
				continue
			}
			wait, err := c.step(ctx, pod)
			if err != nil && !apierrors.IsNotFound(err) {
				c.log.Warn("crash loop stalled", "pod", pod.Namespace+"/"+pod.Name, "err", err)
				wait = time.Second
			}
			live[pod.UID] = time.Now().Add(wait)
		}
		c.next = live
	}
}

// step moves a pod to its next state and says how long that lasts.
func (c *crashLoops) step(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	container := pod.Spec.Containers[0]
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	next := pod.DeepCopy()
	c.fill(next, now)
	old := &next.Status.ContainerStatuses[0]
	events := &podEvents{recorder: c.recorder}
	if running := old.State.Running; running != nil {
		end := &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", StartedAt: running.StartedAt, FinishedAt: now, ContainerID: old.ContainerID,
			Message: "panic: configuration key \"database\" is missing",
		}
		delay := "10s"
		old.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, container.Name, pod.Name, pod.Namespace, pod.UID),
		}}
		old.LastTerminationState = corev1.ContainerState{Terminated: end}
		old.Ready, old.Started = false, new(false)
		if err := c.write(ctx, next); err != nil {
			return 0, err
		}
		events.emit(pod, container.Name, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", container.Name, pod.Name, pod.Namespace, pod.UID))
		return crashEvery - crashRun, nil
	}
	if old.LastTerminationState.Terminated != nil {
		old.RestartCount++
	}
	old.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	old.Started = new(true)
	old.ContainerID = fmt.Sprintf("containerd://%s-%d", pod.UID, old.RestartCount)
	if err := c.write(ctx, next); err != nil {
		return 0, err
	}
	for _, n := range notices(corev1.ContainerStatus{}, *old) {
		events.emit(pod, container.Name, n.kind, n.reason, n.message)
	}
	return crashRun, nil
}

// fill sets what does not change from step to step.
func (c *crashLoops) fill(pod *corev1.Pod, now metav1.Time) {
	s := &pod.Status
	s.Phase = corev1.PodRunning
	if s.StartTime == nil {
		s.StartTime = &now
	}
	if node, err := c.nodes.Get(pod.Spec.NodeName); err == nil && s.HostIP == "" {
		s.HostIP = internalIP(node)
		s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	}
	container := pod.Spec.Containers[0]
	if len(s.ContainerStatuses) == 0 {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: container.Name, Image: container.Image, ImageID: "sha256:" + container.Image}}
	}
	message := "containers with unready status: [" + container.Name + "]"
	for _, condition := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: message},
		{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: message},
	} {
		found := false
		for _, o := range s.Conditions {
			found = found || o.Type == condition.Type
		}
		if !found {
			condition.LastTransitionTime = now
			s.Conditions = append(s.Conditions, condition)
		}
	}
}

func (c *crashLoops) write(ctx context.Context, pod *corev1.Pod) error {
	_, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("status of pod %s changed meanwhile: %w", pod.Name, err)
	}
	return err
}
