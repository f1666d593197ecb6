package content

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

// crashed is how long after its last end a process counts as crash-looping.
const crashed = 5 * time.Minute

// ProcessStatus is the status of the pod that stands for a real process, as a
// kubelet would write it. Times that an unchanged condition carries are kept.
func ProcessStatus(pod *corev1.Pod, hostIP, podIP string, s proc.State) corev1.PodStatus {
	old := pod.Status
	status := corev1.PodStatus{
		Phase:    corev1.PodRunning,
		HostIP:   hostIP,
		HostIPs:  []corev1.HostIP{{IP: hostIP}},
		PodIP:    podIP,
		PodIPs:   []corev1.PodIP{{IP: podIP}},
		QOSClass: old.QOSClass,
	}
	status.StartTime = old.StartTime
	if status.StartTime == nil {
		now := metav1.Now()
		status.StartTime = &now
	}
	ready := s.Phase == proc.Ready
	up := ready || s.Phase == proc.Running
	container := corev1.ContainerStatus{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
		Ready: ready, Started: &up, RestartCount: int32(s.Restarts),
		ImageID: "sha256:testbed", ContainerID: "testbed://" + s.Name,
	}
	if !s.ExitedAt.IsZero() {
		container.LastTerminationState.Terminated = terminated(s)
	}
	switch {
	case up:
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Started.Truncate(time.Second))}
	case s.ExitedAt.IsZero():
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	case s.Phase == proc.Waiting && time.Since(s.ExitedAt) < crashed:
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off restarting failed container: " + s.LastExit}
	default:
		container.State.Terminated = terminated(s)
		container.LastTerminationState = corev1.ContainerState{}
	}
	status.ContainerStatuses = []corev1.ContainerStatus{container}
	why, message := "", ""
	if !ready {
		why, message = "ContainersNotReady", "containers with unready status: ["+container.Name+"]"
	}
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: conditionStatus(ready), Reason: why, Message: message},
		{Type: corev1.ContainersReady, Status: conditionStatus(ready), Reason: why, Message: message},
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	} {
		c.LastTransitionTime = metav1.Now()
		for _, o := range old.Conditions {
			if o.Type == c.Type && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	return status
}

func terminated(s proc.State) *corev1.ContainerStateTerminated {
	reason := "Error"
	if s.ExitCode == 0 {
		reason = "Completed"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: int32(s.ExitCode), Reason: reason,
		StartedAt:  metav1.NewTime(s.Started.Truncate(time.Second)),
		FinishedAt: metav1.NewTime(s.ExitedAt.Truncate(time.Second)), ContainerID: "testbed://" + s.Name,
	}
}

func conditionStatus(ok bool) corev1.ConditionStatus {
	if ok {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
