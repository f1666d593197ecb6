package kubelet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
)

// podEvents reports what happens to containers as a kubelet does, by the
// changes of their states. A container whose change was not seen, because the
// process was not running, is not reported.
type podEvents struct {
	recorder func(node string) record.EventRecorder
}

func (e *podEvents) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok1 := before.(*corev1.Pod)
			is, ok2 := after.(*corev1.Pod)
			if ok1 && ok2 && is.Spec.NodeName != "" {
				e.changed(was, is)
			}
		},
		DeleteFunc: func(gone any) {
			pod, ok := gone.(*corev1.Pod)
			if !ok || pod.Spec.NodeName == "" {
				return
			}
			for _, s := range pod.Status.ContainerStatuses {
				if s.State.Running != nil {
					e.emit(pod, s.Name, corev1.EventTypeNormal, "Killing", "Stopping container "+s.Name)
				}
			}
		},
	}
}

func (e *podEvents) changed(was, is *corev1.Pod) {
	if is.Labels[content.LabelBehaviour] == content.BehaviourCrashLoop {
		return // crashLoops reports these itself, one event for each occurrence
	}
	old := map[string]corev1.ContainerStatus{}
	for _, s := range was.Status.ContainerStatuses {
		old[s.Name] = s
	}
	for _, s := range is.Status.ContainerStatuses {
		for _, n := range notices(old[s.Name], s) {
			e.emit(is, s.Name, n.kind, n.reason, n.message)
		}
	}
}

type notice struct{ kind, reason, message string }

// notices are the events of a container that went from one state to another.
func notices(was, is corev1.ContainerStatus) []notice {
	switch {
	case is.State.Running != nil && (was.State.Running == nil || !was.State.Running.StartedAt.Equal(&is.State.Running.StartedAt)):
		return []notice{
			{corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine", is.Image)},
			{corev1.EventTypeNormal, "Created", "Created container: " + is.Name},
			{corev1.EventTypeNormal, "Started", "Started container " + is.Name},
		}
	case is.State.Waiting != nil && (was.State.Waiting == nil || was.State.Waiting.Reason != is.State.Waiting.Reason):
		switch is.State.Waiting.Reason {
		case "ErrImagePull":
			return []notice{
				{corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", is.Image)},
				{corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", is.Image, is.State.Waiting.Message)},
				{corev1.EventTypeWarning, "Failed", "Error: ErrImagePull"},
			}
		case "ImagePullBackOff":
			return []notice{
				{corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", is.Image)},
				{corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff"},
			}
		}
	}
	return nil
}

func (e *podEvents) emit(pod *corev1.Pod, container, kind, reason, message string) {
	ref, err := reference.GetPartialReference(scheme.Scheme, pod, "spec.containers{"+container+"}")
	if err != nil {
		return
	}
	e.recorder(pod.Spec.NodeName).Event(ref, kind, reason, message)
}
