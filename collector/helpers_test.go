package collector_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // outages are what some tests are about
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"), // idle connections of shared transports
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
	)
}

// running is a collector at work, served over HTTP.
type running struct {
	*collector.Collector
	url      string
	registry *prometheus.Registry
	stop     func()
}

// start runs a collector of cluster "a" until the test ends.
func start(t testing.TB, api *fakeAPI, change func(*collector.Config)) *running {
	t.Helper()
	r := &running{registry: prometheus.NewRegistry()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Handler().ServeHTTP(w, req)
	}))
	r.url = "http://" + server.Listener.Addr().String()
	cfg := collector.Config{Cluster: "a", REST: api.config(), ExternalURL: r.url, Registerer: r.registry}
	if change != nil {
		change(&cfg)
	}
	c, err := collector.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Collector = c
	server.Start()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
	t.Cleanup(r.stop)
	return r
}

// list reads the published target list.
func (r *running) list(t testing.TB) target.List {
	t.Helper()
	resp, body := get(t, r.url+"/clusters/a/targets", nil)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("list: status %d: %s", resp.StatusCode, body)
	}
	var list target.List
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// await polls until ok accepts the list.
func (r *running) await(t testing.TB, what string, ok func(target.List) bool) target.List {
	t.Helper()
	var list target.List
	eventually(t, what, func() bool {
		list = r.list(t)
		return ok(list)
	})
	return list
}

func synced(l target.List) bool { return l.Synced }

// eventually polls ok until it holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(45 * time.Second)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 45 s: %s", what)
		case <-poll.C:
		}
	}
}

// reply is an answer whose body has been read.
type reply struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

func get(t testing.TB, url string, header http.Header) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	// Not the default transport: it would ask for gzip and unpack it.
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read %s: %v", url, err)
	}
	return reply{resp.StatusCode, resp.Header, resp.ContentLength}, string(body)
}

// annotatedPod is a running pod that asks to be scraped at address.
func annotatedPod(name, host, port string, annotations map[string]string) *corev1.Pod {
	all := map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": port}
	maps.Copy(all, annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: all},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: host},
	}
}

// objectsOf reads a file of YAML documents.
func objectsOf(t testing.TB, file string) []runtime.Object {
	t.Helper()
	content, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		document, err := utilyaml.ToJSON([]byte(document))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, o)
	}
	return objects
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
