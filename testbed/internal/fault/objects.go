package fault

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
)

// Namespace holds the objects that faults make.
const Namespace = "demo-faults"

func setHeartbeat(ctx context.Context, t Target, node, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, content.LabelHeartbeat, value)
	_, err := t.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("cluster %s has no node %s; see: kubectl --context %s get nodes", t.Cluster.Name, node, t.Cluster.Name)
	}
	return err
}

func silent(ctx context.Context, t Target) ([]string, error) {
	list, err := t.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: content.LabelHeartbeat + "=" + content.HeartbeatOff})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

func stopHeartbeat(ctx context.Context, t Target) (string, error) {
	node := t.Node
	if node == "" {
		if names, err := silent(ctx, t); err != nil {
			return "", err
		} else if len(names) > 0 {
			return "node " + strings.Join(names, ", ") + " is silent already", nil
		}
		node = t.Cluster.Nodes()[t.Cluster.ControlPlanes()].Name
	}
	return "node " + node + " renews its lease no more", setHeartbeat(ctx, t, node, content.HeartbeatOff)
}

func resumeHeartbeat(ctx context.Context, t Target) (string, error) {
	names := []string{t.Node}
	if t.Node == "" {
		var err error
		if names, err = silent(ctx, t); err != nil {
			return "", err
		}
	}
	for _, n := range names {
		if err := setHeartbeat(ctx, t, n, content.HeartbeatOn); err != nil {
			return "", err
		}
	}
	if len(names) == 0 {
		return "every node renews its lease", nil
	}
	return "node " + strings.Join(names, ", ") + " renews its lease again", nil
}

func silentNodes(ctx context.Context, t Target) (string, error) {
	names, err := silent(ctx, t)
	return strings.Join(names, ", "), err
}

func ensureNamespace(ctx context.Context, t Target) error {
	_, err := t.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

const (
	faultCrashLoop = "crash-loop"
	faultOrphan    = "service-no-endpoints"
)

func nameOr(t Target, name string) string {
	if t.Name != "" {
		return t.Name
	}
	return name
}

func startCrashLoop(ctx context.Context, t Target) (string, error) {
	if err := ensureNamespace(ctx, t); err != nil {
		return "", err
	}
	name := nameOr(t, "crash-loop")
	mount := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{
			"app": name, content.LabelFault: faultCrashLoop, content.LabelBehaviour: content.BehaviourCrashLoop,
		}},
		Spec: corev1.PodSpec{
			NodeName: t.Node, AutomountServiceAccountToken: &mount,
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example/lab/crash:1.0.0",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
				},
			}},
		},
	}
	_, err := t.Client.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return "pod " + Namespace + "/" + name + " is there already", nil
	}
	return "pod " + Namespace + "/" + name + " created", err
}

// selectorOf matches one fault's objects, or the named one alone.
func selectorOf(t Target, fault string) metav1.ListOptions {
	o := metav1.ListOptions{LabelSelector: content.LabelFault + "=" + fault}
	if t.Name != "" {
		o.FieldSelector = "metadata.name=" + t.Name
	}
	return o
}

func endCrashLoop(ctx context.Context, t Target) (string, error) {
	list, err := t.Client.CoreV1().Pods(Namespace).List(ctx, selectorOf(t, faultCrashLoop))
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		if err := t.Client.CoreV1().Pods(Namespace).Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
	}
	return fmt.Sprintf("%d crash-looping pods deleted from %s", len(list.Items), Namespace), nil
}

func crashLoops(ctx context.Context, t Target) (string, error) {
	list, err := t.Client.CoreV1().Pods(Namespace).List(ctx, selectorOf(t, faultCrashLoop))
	if err != nil {
		return "", err
	}
	var out []string
	for i := range list.Items {
		restarts := int32(0)
		for _, s := range list.Items[i].Status.ContainerStatuses {
			restarts = s.RestartCount
		}
		out = append(out, fmt.Sprintf("pod %s/%s, %d restarts", Namespace, list.Items[i].Name, restarts))
	}
	return strings.Join(out, "; "), nil
}

func makeOrphan(ctx context.Context, t Target) (string, error) {
	if err := ensureNamespace(ctx, t); err != nil {
		return "", err
	}
	name := nameOr(t, "no-endpoints")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{content.LabelFault: faultOrphan}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "nothing-has-this-label"},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	_, err := t.Client.CoreV1().Services(Namespace).Create(ctx, service, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return "service " + Namespace + "/" + name + " is there already", nil
	}
	return "service " + Namespace + "/" + name + " created", err
}

func orphanNames(ctx context.Context, t Target) ([]string, error) {
	list, err := t.Client.CoreV1().Services(Namespace).List(ctx, selectorOf(t, faultOrphan))
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

func removeOrphan(ctx context.Context, t Target) (string, error) {
	names, err := orphanNames(ctx, t)
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if err := t.Client.CoreV1().Services(Namespace).Delete(ctx, n, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
	}
	return fmt.Sprintf("%d services without endpoints deleted from %s", len(names), Namespace), nil
}

func orphans(ctx context.Context, t Target) (string, error) {
	names, err := orphanNames(ctx, t)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return "service " + Namespace + "/" + strings.Join(names, ", "), nil
}
