package kubelet

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
)

// markedPod is a pod that runs and that the node lifecycle controller has
// marked not Ready.
func markedPod(change func(*corev1.Pod)) *corev1.Pod {
	before := metav1.NewTime(time.Unix(1000, 0))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app"}, {Name: "side"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: before},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: before},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: before},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true}, {Name: "side", Ready: true}},
		},
	}
	change(pod)
	return pod
}

func nodeOf(name string, ready corev1.ConditionStatus, heartbeat string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{content.LabelHeartbeat: heartbeat}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func TestReadyAgain(t *testing.T) {
	now := metav1.NewTime(time.Unix(2000, 0))
	deleted := metav1.NewTime(time.Unix(1500, 0))
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   bool
	}{
		{"marked by the node lifecycle controller", func(*corev1.Pod) {}, true},
		{"its condition of containers is marked too", func(p *corev1.Pod) { p.Status.Conditions[2].Status = corev1.ConditionFalse }, true},
		{"its readiness is unknown", func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionUnknown }, true},
		{"its readiness gate is open", func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "gate", Status: corev1.ConditionTrue})
		}, true},
		{"Ready already", func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionTrue }, false},
		{"its readiness gate is shut", func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
		}, false},
		{"a container is not ready", func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = false }, false},
		{"a container has no status", func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1] }, false},
		{"not started", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, false},
		{"done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		{"being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, false},
		{"stands for a real process", func(p *corev1.Pod) { p.Labels[content.LabelProcess] = "coredns" }, false},
		{"crash-loops", func(p *corev1.Pod) { p.Labels[content.LabelBehaviour] = content.BehaviourCrashLoop }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := markedPod(tc.change)
			was := pod.DeepCopy()
			got, ok := readyAgain(pod, now)
			if ok != tc.want {
				t.Fatalf("restored: %v, want %v", ok, tc.want)
			}
			if pod.Status.Conditions[1] != was.Status.Conditions[1] {
				t.Error("the pod that was passed in has changed")
			}
			if !ok {
				return
			}
			for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
				is, before := conditionOf(got, kind), conditionOf(was, kind)
				if is.Status != corev1.ConditionTrue || is.Reason != "" {
					t.Errorf("%s is %+v", kind, is)
				}
				if moved := is.Status != before.Status; moved != is.LastTransitionTime.Equal(&now) {
					t.Errorf("%s went from %s to %s at %s", kind, before.Status, is.Status, is.LastTransitionTime)
				}
			}
		})
	}
}

// Pods are restored on nodes that report, and on no other.
func TestReadinessRound(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	client := fake.NewClientset()
	want := map[string]corev1.ConditionStatus{}
	for _, tc := range []struct {
		node *corev1.Node
		want corev1.ConditionStatus
	}{
		{nodeOf("reports", corev1.ConditionTrue, content.HeartbeatOn), corev1.ConditionTrue},
		{nodeOf("not-ready", corev1.ConditionFalse, content.HeartbeatOn), corev1.ConditionFalse},
		{nodeOf("unknown", corev1.ConditionUnknown, content.HeartbeatOn), corev1.ConditionFalse},
		{nodeOf("silent", corev1.ConditionTrue, content.HeartbeatOff), corev1.ConditionFalse},
	} {
		pod := markedPod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "on-"+tc.node.Name, tc.node.Name })
		want[pod.Name] = tc.want
		if err := nodes.Add(tc.node); err != nil {
			t.Fatal(err)
		}
		if err := pods.Add(pod); err != nil {
			t.Fatal(err)
		}
		if err := client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	r := &readiness{client: client, pods: listers.NewPodLister(pods), nodes: listers.NewNodeLister(nodes), log: slog.New(slog.DiscardHandler)}
	if err := r.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, status := range want {
		pod, err := client.CoreV1().Pods("ns").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := conditionOf(pod, corev1.PodReady).Status; got != status {
			t.Errorf("pod %s: Ready is %s, want %s", name, got, status)
		}
	}
}
