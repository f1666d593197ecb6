package fault_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/fault"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

func target(t *testing.T) fault.Target {
	c := layout.Options{Dir: t.TempDir(), PortBase: 10100, Clusters: 1, Nodes: 3, EtcdMembers: 1, APIServers: 1, AppSeries: 1}.ClusterList()[0]
	client := fake.NewClientset()
	for _, n := range c.Nodes() {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), content.Node(c, n), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return fault.Target{Cluster: c, Client: client}
}

// Faults that live in the API: injecting and clearing twice is as good as once.
func TestFaultsAreIdempotent(t *testing.T) {
	for _, name := range []string{"node-heartbeat", "crash-loop", "service-no-endpoints"} {
		t.Run(name, func(t *testing.T) {
			f, err := fault.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			tg := target(t)
			active := func(want bool) {
				t.Helper()
				what, err := f.Active(t.Context(), tg)
				if err != nil || (what != "") != want {
					t.Errorf("in effect: %q (%v), want %v", what, err, want)
				}
			}
			active(false)
			for range 2 {
				if did, err := f.Inject(t.Context(), tg); err != nil || did == "" {
					t.Fatalf("inject: %q, %v", did, err)
				}
				active(true)
			}
			for range 2 {
				if _, err := f.Clear(t.Context(), tg); err != nil {
					t.Fatalf("clear: %v", err)
				}
				active(false)
			}
		})
	}
}

func TestHeartbeatOfUnknownNode(t *testing.T) {
	f, err := fault.Find("node-heartbeat")
	if err != nil {
		t.Fatal(err)
	}
	tg := target(t)
	tg.Node = "nowhere"
	if _, err := f.Inject(t.Context(), tg); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v, want an error that names the node", err)
	}
}

func TestCrashLoopPodGoesToTheKubelets(t *testing.T) {
	f, err := fault.Find("crash-loop")
	if err != nil {
		t.Fatal(err)
	}
	tg := target(t)
	tg.Name = "mine"
	if _, err := f.Inject(t.Context(), tg); err != nil {
		t.Fatal(err)
	}
	pod, err := tg.Client.CoreV1().Pods(fault.Namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Labels[content.LabelBehaviour] != content.BehaviourCrashLoop || pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		t.Errorf("labels %v, restart policy %q", pod.Labels, pod.Spec.RestartPolicy)
	}
}

func TestFindNamesTheChoices(t *testing.T) {
	if _, err := fault.Find("nonsense"); err == nil || !strings.Contains(err.Error(), "scheduler-down") {
		t.Errorf("got %v, want an error that lists the faults", err)
	}
	for _, f := range fault.All() {
		if f.Summary == "" || f.Expect == "" || f.Inject == nil || f.Clear == nil || f.Active == nil {
			t.Errorf("fault %s is incomplete", f.Name)
		}
	}
}
