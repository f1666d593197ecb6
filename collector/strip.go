package collector

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strip keeps of an object what discovery makes labels from and throws the
// rest away before it is stored: a pod shrinks from some 10 KiB to 2 KiB.
//
// Slices are rebuilt with no spare capacity: Prometheus' discovery appends to
// the container list of a cached pod, and one cached pod serves several
// discoveries at once.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return stripPod(o), nil
	case *corev1.Node:
		return stripNode(o), nil
	case *corev1.Service:
		stripMeta(&o.ObjectMeta)
		o.Status.Conditions = nil
	case *corev1.Namespace:
		stripMeta(&o.ObjectMeta)
		o.Status = corev1.NamespaceStatus{}
	case *appsv1.ReplicaSet:
		stripMeta(&o.ObjectMeta)
		o.Spec, o.Status = appsv1.ReplicaSetSpec{}, appsv1.ReplicaSetStatus{}
	case *batchv1.Job:
		stripMeta(&o.ObjectMeta)
		o.Spec, o.Status = batchv1.JobSpec{}, batchv1.JobStatus{}
	case metav1.Object:
		o.SetManagedFields(nil)
		stripAnnotations(o.GetAnnotations())
	}
	return obj, nil
}

func stripMeta(m *metav1.ObjectMeta) {
	m.ManagedFields, m.Finalizers = nil, nil
	stripAnnotations(m.Annotations)
}

// stripAnnotations drops copies of whole objects. No relabelling can want them.
func stripAnnotations(annotations map[string]string) {
	delete(annotations, corev1.LastAppliedConfigAnnotation)
}

func stripPod(pod *corev1.Pod) *corev1.Pod {
	stripMeta(&pod.ObjectMeta)
	return &corev1.Pod{
		ObjectMeta: pod.ObjectMeta,
		Spec: corev1.PodSpec{
			NodeName:       pod.Spec.NodeName,
			Containers:     stripContainers(pod.Spec.Containers),
			InitContainers: stripContainers(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase:                 pod.Status.Phase,
			PodIP:                 pod.Status.PodIP,
			HostIP:                pod.Status.HostIP,
			Conditions:            stripConditions(pod.Status.Conditions),
			ContainerStatuses:     stripStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses: stripStatuses(pod.Status.InitContainerStatuses),
		},
	}
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		out[i] = corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports}
	}
	return out
}

func stripConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.PodReady {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

func stripStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(statuses))
	for i, s := range statuses {
		out[i] = corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID}
	}
	return out
}

func stripNode(node *corev1.Node) *corev1.Node {
	stripMeta(&node.ObjectMeta)
	conditions := make([]corev1.NodeCondition, len(node.Status.Conditions))
	for i, c := range node.Status.Conditions {
		conditions[i] = corev1.NodeCondition{Type: c.Type, Status: c.Status}
	}
	return &corev1.Node{
		ObjectMeta: node.ObjectMeta,
		Spec:       corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
		Status: corev1.NodeStatus{
			Conditions:      conditions,
			Addresses:       node.Status.Addresses,
			DaemonEndpoints: node.Status.DaemonEndpoints,
		},
	}
}
