package snapshot_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

const (
	podsPath  = "/api/v1/pods"
	nodesPath = "/api/v1/nodes"
)

func TestCollectHealthy(t *testing.T) {
	var progressed atomic.Int64
	options := quick()
	options.Progress = func(snapshot.Progress) { progressed.Add(1) }
	_, config := serve(t, map[string]http.HandlerFunc{
		nodesPath: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer t" || !strings.HasPrefix(r.UserAgent(), "fleetwatch-inspect") {
				status(http.StatusUnauthorized, "Unauthorized")(w, r)
				return
			}
			answerList(w, "", named("", "n1"), named("", "n2"))
		},
	})
	snap := collect(t, config, options)
	if snap.Unreachable != nil {
		t.Fatalf("unreachable: %s", snap.Unreachable)
	}
	for _, resource := range snapshot.AllReads() {
		read, tried := snap.Reads[resource]
		if !tried || read.Problem != nil {
			t.Errorf("%s: tried %t, %s", resource, tried, read.Problem)
		}
	}
	if len(snap.Nodes) != 2 || snap.KubernetesVersion != "v1.37.2" || !snap.Readyz.OK || len(snap.Serving) != 1 || len(snap.Authorities) != 1 {
		t.Errorf("got %d nodes, version %q, readyz %+v, %d certificates, %d authorities",
			len(snap.Nodes), snap.KubernetesVersion, snap.Readyz, len(snap.Serving), len(snap.Authorities))
	}
	if int(progressed.Load()) != len(snapshot.AllReads()) {
		t.Errorf("progress was told of %d reads, want %d", progressed.Load(), len(snapshot.AllReads()))
	}
	want := []snapshot.Sample{
		{Name: "apiserver_request_total", Labels: map[string]string{"code": "200"}, Value: 12},
		{Name: "apiserver_request_total", Labels: map[string]string{"code": "500"}, Value: 1},
		{Name: "apiserver_resource_objects", Labels: map[string]string{"resource": "pods"}, Value: 3},
		{Name: "apiserver_storage_size_bytes", Labels: map[string]string{"storage_cluster_id": "etcd-0"}, Value: 4096},
		{Name: "etcd_request_duration_seconds_bucket", Labels: map[string]string{"le": "0.1"}, Value: 7},
		{Name: "process_start_time_seconds", Value: 1.7e9},
	}
	if diff := cmp.Diff(want, snap.Scrapes[0].First.Values); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// TestFailedReads: each failure is recorded with its reason, leaves nothing
// behind that looks like an empty list, and does not touch the other reads.
func TestFailedReads(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, test := range []struct {
		name, path string
		resource   snapshot.Resource
		answer     http.HandlerFunc
		want       snapshot.Reason
	}{
		{"forbidden list", nodesPath, snapshot.Nodes, status(403, "Forbidden"), snapshot.ReasonForbidden},
		{"server error", nodesPath, snapshot.Nodes, status(500, "InternalError"), snapshot.ReasonServerError},
		{"throttled", nodesPath, snapshot.Nodes, status(429, "TooManyRequests"), snapshot.ReasonThrottled},
		{"missing API", "/apis/autoscaling/v2/horizontalpodautoscalers", snapshot.HPAs, status(404, "NotFound"), snapshot.ReasonNotFound},
		{"never answers", nodesPath, snapshot.Nodes, hang, snapshot.ReasonTimeout},
		{"empty object", nodesPath, snapshot.Nodes, func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `{}`) }, snapshot.ReasonMalformed},
		{"half a list", nodesPath, snapshot.Nodes, half, snapshot.ReasonMalformed},
		{"garbage", nodesPath, snapshot.Nodes, func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `<html>login</html>`) }, snapshot.ReasonMalformed},
		{"forbidden metrics", "/metrics", snapshot.APIServerMetrics, status(403, "Forbidden"), snapshot.ReasonForbidden},
		{"metrics are a page", "/metrics", snapshot.APIServerMetrics, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>\n") }, snapshot.ReasonMalformed},
		{"empty metrics", "/metrics", snapshot.APIServerMetrics, func(http.ResponseWriter, *http.Request) {}, snapshot.ReasonMalformed},
		{"readyz is a page", "/readyz", snapshot.Readyz, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>ok</html>") }, snapshot.ReasonMalformed},
		{"readyz forbidden", "/readyz", snapshot.Readyz, status(403, "Forbidden"), snapshot.ReasonForbidden},
		{"apiservices of another kind", "/apis/apiregistration.k8s.io/v1/apiservices", snapshot.APIServices, func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `{"kind":"List"}`) }, snapshot.ReasonMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, config := serve(t, map[string]http.HandlerFunc{
				test.path: test.answer,
				podsPath:  func(w http.ResponseWriter, _ *http.Request) { answerList(w, "", named("shop", "p")) },
			})
			options := quick()
			options.RequestTimeout = 2 * time.Second
			snap := collect(t, config, options)
			if snap.Unreachable != nil {
				t.Fatalf("unreachable: %s", snap.Unreachable)
			}
			problem := snap.Reads[test.resource].Problem
			if problem == nil || problem.Reason != test.want {
				t.Errorf("%s: got %s, want %s", test.resource, problem, test.want)
			}
			if len(snap.Nodes) > 0 || len(snap.Pods) != 1 {
				t.Errorf("kept %d nodes, %d pods", len(snap.Nodes), len(snap.Pods))
			}
			for resource, read := range snap.Reads {
				if resource != test.resource && read.Problem != nil {
					t.Errorf("%s failed too: %s", resource, read.Problem)
				}
			}
		})
	}
}

// half announces a long answer and hangs up in the middle of it.
func half(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "5000")
	fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"n1"}},`)
}

func TestPages(t *testing.T) {
	const total = 7
	paged := func(expireAt int, stillExpired bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			limit, _ := strconv.Atoi(query.Get("limit"))
			from, _ := strconv.Atoi(query.Get("continue"))
			if expireAt > 0 && from >= expireAt || limit == 0 && stillExpired {
				status(410, "Expired")(w, r)
				return
			}
			var items []any
			for i := from; i < total && (limit == 0 || i < from+limit); i++ {
				items = append(items, named("", "n"+strconv.Itoa(i)))
			}
			next := ""
			if from+len(items) < total {
				next = strconv.Itoa(from + len(items))
			}
			answerList(w, next, items...)
		}
	}
	for _, test := range []struct {
		name     string
		answer   http.HandlerFunc
		maxItems int
		want     int
		reason   snapshot.Reason
	}{
		{"three pages", paged(0, false), 100, total, ""},
		{"expired on the second page, then whole", paged(3, false), 100, total, ""},
		{"expired every time", paged(3, true), 100, 0, snapshot.ReasonExpired},
		{"too many", paged(0, false), 5, 0, snapshot.ReasonTooMany},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, config := serve(t, map[string]http.HandlerFunc{nodesPath: test.answer})
			options := quick()
			options.PageSize, options.MaxItems = 3, test.maxItems
			snap := collect(t, config, options)
			var reason snapshot.Reason
			if problem := snap.Reads[snapshot.Nodes].Problem; problem != nil {
				reason = problem.Reason
			}
			if len(snap.Nodes) != test.want || reason != test.reason {
				t.Errorf("got %d nodes, reason %q; want %d, %q", len(snap.Nodes), reason, test.want, test.reason)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	server, config := serve(t, nil)
	_, rejecting := serve(t, map[string]http.HandlerFunc{"/version": status(401, "Unauthorized")})
	_, page := serve(t, map[string]http.HandlerFunc{"/version": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }})
	_, hanging := serve(t, map[string]http.HandlerFunc{"/version": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
	for _, test := range []struct {
		name   string
		source snapshot.Source
		want   snapshot.Reason
	}{
		{"refused", snapshot.Source{Config: &rest.Config{Host: "http://" + closed.Addr().String()}}, snapshot.ReasonRefused},
		{"unknown authority", snapshot.Source{Config: &rest.Config{Host: server.URL}}, snapshot.ReasonTLS},
		{"plain HTTP on a TLS address", snapshot.Source{Config: &rest.Config{Host: strings.Replace(server.URL, "https", "http", 1)}}, snapshot.ReasonOther},
		{"credentials refused", snapshot.Source{Config: rejecting}, snapshot.ReasonUnauthorized},
		{"not Kubernetes", snapshot.Source{Config: page}, snapshot.ReasonMalformed},
		{"never answers", snapshot.Source{Config: hanging}, snapshot.ReasonTimeout},
		{"no configuration", snapshot.Source{Err: errors.New("context a has no cluster")}, snapshot.ReasonConfig},
		{"CA file is missing", snapshot.Source{Config: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}}}, snapshot.ReasonConfig},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := quick()
			options.RequestTimeout = time.Second
			test.source.Name = "a"
			snap := snapshot.Collect(t.Context(), test.source, options)
			if snap.Unreachable == nil || snap.Unreachable.Reason != test.want || snap.Unreachable.Message == "" {
				t.Errorf("got %s, want %s", snap.Unreachable, test.want)
			}
		})
	}
	if snap := collect(t, &rest.Config{Host: server.URL}, quick()); len(snap.Serving) != 1 || snap.Serving[0].Leaf == nil {
		t.Errorf("an untrusted certificate is not kept: %+v", snap.Serving)
	}
	if snap := collect(t, config, quick()); snap.Unreachable != nil {
		t.Errorf("the same server with its authority: %s", snap.Unreachable)
	}
}

// TestDeadline: a cluster that stops to answer is given up on in time, with
// what was read until then.
func TestDeadline(t *testing.T) {
	_, config := serve(t, map[string]http.HandlerFunc{podsPath: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
	options := quick()
	options.Timeout = 2 * time.Second
	started := time.Now()
	snap := collect(t, config, options)
	if took := time.Since(started); took > 8*time.Second {
		t.Errorf("took %s", took)
	}
	if problem := snap.Reads[snapshot.Pods].Problem; problem == nil || problem.Reason != snapshot.ReasonTimeout {
		t.Errorf("pods: %s", problem)
	}
	if problem := snap.Reads[snapshot.ControlPlane].Problem; problem == nil {
		t.Error("the probes need the pods and did not notice")
	}
	if snap.Reads[snapshot.Nodes].Problem != nil || snap.Unreachable != nil {
		t.Errorf("nodes: %s, unreachable: %s", snap.Reads[snapshot.Nodes].Problem, snap.Unreachable)
	}
}

// TestHangingTransport: what honours no context does not hold Collect up.
func TestHangingTransport(t *testing.T) {
	release := make(chan struct{})
	returned := make(chan struct{})
	config := &rest.Config{Host: "http://127.0.0.1:1", WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) {
			<-release
			defer close(returned)
			return nil, errors.New("late")
		})
	}}
	options := quick()
	options.Timeout = 100 * time.Millisecond
	snap := collect(t, config, options)
	if snap.Unreachable == nil || snap.Unreachable.Reason != snapshot.ReasonTimeout {
		t.Errorf("got %s", snap.Unreachable)
	}
	close(release)
	<-returned
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestCancelledCollection(t *testing.T) {
	_, config := serve(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if snap := snapshot.Collect(ctx, snapshot.Source{Name: "a", Config: config}, quick()); snap.Unreachable == nil {
		t.Error("a cancelled collection looks complete")
	}
}

func TestSecondScrape(t *testing.T) {
	var count atomic.Int64
	_, config := serve(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "apiserver_request_total{code=\"200\"} %d\n", 100*count.Add(1))
	}})
	options := quick()
	options.MetricsWindow = time.Millisecond
	snap := collect(t, config, options)
	first, _ := snap.Scrapes[0].First.Value("apiserver_request_total")
	second, ok := snap.Scrapes[0].Second.Value("apiserver_request_total", "code", "200")
	if !ok || second-first != 100 {
		t.Errorf("first %v, second %v", first, second)
	}
}

func TestFileRoundTrip(t *testing.T) {
	_, config := serve(t, map[string]http.HandlerFunc{nodesPath: status(403, "Forbidden")})
	snap := collect(t, config, quick())
	var packed bytes.Buffer
	if err := snapshot.Encode(&packed, snap.Started, []*snapshot.Snapshot{snap}); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(packed.Bytes(), []byte("Bearer")) {
		t.Error("the file holds a credential")
	}
	file, err := snapshot.Decode(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(snap, file.Snapshots[0]); diff != "" {
		t.Errorf("(-saved +loaded):\n%s", diff)
	}
}
