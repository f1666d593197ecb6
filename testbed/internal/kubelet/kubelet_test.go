package kubelet

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

func TestSubresources(t *testing.T) {
	for path, want := range map[string][]string{
		"/metrics":          {"metrics"},
		"/metrics/cadvisor": {"metrics"},
		"/stats/summary":    {"stats"},
		"/healthz":          {"healthz", "proxy"},
		"/pods":             {"pods", "proxy"},
		"/exec/a/b/c":       {"proxy"},
		"/":                 {"proxy"},
	} {
		if got := subresources(path); !slices.Equal(got, want) {
			t.Errorf("%s needs one of %v, want %v", path, got, want)
		}
	}
}

func waiting(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "c", Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func running() corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "c", Image: "i", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func TestNotices(t *testing.T) {
	for _, tc := range []struct {
		name    string
		was, is corev1.ContainerStatus
		want    []string
	}{
		{"started", waiting("ContainerCreating"), running(), []string{"Pulled", "Created", "Started"}},
		{"still running", running(), running(), nil},
		{"cannot pull", waiting("ContainerCreating"), waiting("ErrImagePull"), []string{"Pulling", "Failed", "Failed"}},
		{"backs off", waiting("ErrImagePull"), waiting("ImagePullBackOff"), []string{"BackOff", "Failed"}},
		{"still backs off", waiting("ImagePullBackOff"), waiting("ImagePullBackOff"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, n := range notices(tc.was, tc.is) {
				got = append(got, n.reason)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("events %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPagesOfKWOK(t *testing.T) {
	asked := []string{}
	kwok := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		fmt.Fprintf(w, "# TYPE cadvisor:container_x gauge\ncadvisor:container_x %d\n", len(asked))
	}))
	defer kwok.Close()
	handler := newKWOKMetrics(kwok.URL).handler("n1", "metrics/cadvisor", func() []byte { return []byte("extra 1\n") })
	server := httptest.NewServer(handler)
	defer server.Close()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	z, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	// The first answer of a fresh KWOK lacks pods and is thrown away.
	if want := "# TYPE container_x gauge\ncontainer_x 2\nextra 1\n"; string(body) != want {
		t.Errorf("page is %q, want %q", body, want)
	}
	if want := []string{"/metrics/nodes/n1/metrics/cadvisor", "/metrics/nodes/n1/metrics/cadvisor"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v", asked)
	}
}

func TestDeadKWOKIsABadGateway(t *testing.T) {
	w := httptest.NewRecorder()
	newKWOKMetrics("http://127.0.0.1:1").handler("n1", "metrics", nil)(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "n1") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A crash loop, step by step: runs, fails with an event, runs again with one
// restart more.
func TestCrashLoopSteps(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "i"}}},
	}
	client := fake.NewClientset(pod)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.10.0.1"}}}}); err != nil {
		t.Fatal(err)
	}
	events := record.NewFakeRecorder(100)
	c := &crashLoops{client: client, nodes: listers.NewNodeLister(nodes), recorder: func(string) record.EventRecorder { return events }, log: slog.New(slog.DiscardHandler)}
	step := func() corev1.ContainerStatus {
		t.Helper()
		current, err := client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.step(context.WithoutCancel(t.Context()), current); err != nil {
			t.Fatal(err)
		}
		current, err = client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return current.Status.ContainerStatuses[0]
	}
	for round := range int32(3) {
		if s := step(); s.State.Running == nil || s.RestartCount != round {
			t.Fatalf("round %d: %+v", round, s)
		}
		for _, want := range []string{"Pulled", "Created", "Started"} {
			if e := <-events.Events; !strings.Contains(e, want) {
				t.Errorf("round %d: event %q, want %s", round, e, want)
			}
		}
		s := step()
		if s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.LastTerminationState.Terminated.ExitCode != 1 || s.RestartCount != round {
			t.Fatalf("round %d: %+v", round, s)
		}
		if e := <-events.Events; !strings.HasPrefix(e, "Warning BackOff Back-off restarting failed container app in pod p_ns(u)") {
			t.Errorf("round %d: event %q", round, e)
		}
	}
}
