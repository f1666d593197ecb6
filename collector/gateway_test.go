package collector_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// serveTarget starts h and returns the host and port of a target.
func serveTarget(t testing.TB, h http.HandlerFunc) (host, port string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// startWithTarget runs a collector with h behind one annotated pod and returns
// the pod's scrape URL.
func startWithTarget(t testing.TB, h http.HandlerFunc, change func(*collector.Config)) (*running, string) {
	t.Helper()
	host, port := serveTarget(t, h)
	r := start(t, newFakeAPI(t, annotatedPod("p", host, port, nil)), change)
	list := r.await(t, "the pod is found", func(l target.List) bool { return l.Synced && len(l.Targets) == 1 })
	return r, list.Targets[0].ScrapeURL
}

func TestGatewayPassesNegotiationAndBytes(t *testing.T) {
	t.Parallel()
	protobuf := make([]byte, 200<<10) // more than any buffer on the way
	_, _ = rand.Read(protobuf)
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = zip.Write(bytes.Repeat([]byte("metric 1\n"), 5000))
	_ = zip.Close()

	seen := make(chan http.Header, 1)
	_, url := startWithTarget(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		w.Header().Set("Set-Cookie", "secret=1")
		if strings.Contains(r.Header.Get("Accept"), "protobuf") {
			w.Header().Set("Content-Type", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
			_, _ = w.Write(protobuf)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(zipped.Bytes())
	}, nil)

	for name, c := range map[string]struct {
		accept, contentType, encoding string
		body                          []byte
	}{
		"protobuf": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited", "", protobuf},
		"gzip":     {"text/plain", "text/plain; version=0.0.4", "gzip", zipped.Bytes()},
	} {
		t.Run(name, func(t *testing.T) {
			sent := http.Header{
				"Accept": {c.accept}, "Accept-Encoding": {"gzip"}, "User-Agent": {"Prometheus/3.16.0"},
				"X-Prometheus-Scrape-Timeout-Seconds": {"7.5"}, "Authorization": {"Bearer of-the-shard"}, "Cookie": {"a=b"},
			}
			resp, body := get(t, url, sent)
			if resp.StatusCode != http.StatusOK || body != string(c.body) {
				t.Errorf("status %d, %d bytes; want %d untouched", resp.StatusCode, len(body), len(c.body))
			}
			if resp.Header.Get("Content-Type") != c.contentType || resp.Header.Get("Content-Encoding") != c.encoding || resp.Header.Get("Set-Cookie") != "" {
				t.Errorf("headers %v", resp.Header)
			}
			got := <-seen
			want := http.Header{
				"Accept": {c.accept}, "Accept-Encoding": {"gzip"}, "User-Agent": {"Prometheus/3.16.0"},
				"X-Prometheus-Scrape-Timeout-Seconds": {"7.5"},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the target saw other headers (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("nothing asked, nothing added", func(t *testing.T) {
		get(t, url, http.Header{"User-Agent": {"x"}})
		if diff := cmp.Diff(http.Header{"User-Agent": {"x"}}, <-seen); diff != "" {
			t.Errorf("the target saw other headers (-want +got):\n%s", diff)
		}
	})
}

func TestGatewayReusesConnections(t *testing.T) {
	t.Parallel()
	conns := make(chan string, 10)
	_, url := startWithTarget(t, func(w http.ResponseWriter, r *http.Request) {
		conns <- r.RemoteAddr
		fmt.Fprintln(w, "up 1")
	}, nil)
	get(t, url, nil)
	get(t, url, nil)
	if a, b := <-conns, <-conns; a != b {
		t.Errorf("two scrapes came over %s and %s", a, b)
	}
}

func TestGatewayStreams(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	_, url := startWithTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 128<<10))
		_ = http.NewResponseController(w).Flush()
		<-release
		fmt.Fprint(w, "end")
	}, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 64<<10)); err != nil {
		t.Fatal("the first bytes do not come before the last:", err)
	}
	close(release)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.HasSuffix(rest, []byte("xend")) {
		t.Errorf("the rest: %d bytes, %v", len(rest), err)
	}
}

func TestGatewayFailures(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	wait := func(r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int
		reason  string
	}{
		"answers 503":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 503, "status_5xx"},
		"answers 401":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 401, "status_4xx"},
		"never answers": {func(_ http.ResponseWriter, r *http.Request) { wait(r) }, 504, "timeout"},
		"trickles": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
			wait(r)
		}, 504, "timeout"},
		"claims a huge body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99999999")
		}, 502, "too_large"},
		"cuts its body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		}, 502, "broken_answer"},
		"cuts its chunks": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 502, "broken_answer"},
		"speaks no HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				fmt.Fprint(conn, "SSH-2.0-nonsense\r\n\r\n")
				conn.Close()
			}
		}, 502, "broken_answer"},
		"sends endless headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
		}, 502, "broken_answer"},
		"redirects away": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/steal", http.StatusFound)
		}, 502, "redirect_refused"},
		"redirects in circles": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/metrics", http.StatusFound)
		}, 502, "redirect_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, url := startWithTarget(t, c.handler, func(cfg *collector.Config) { cfg.MaxBodyBytes = 1 << 20 })
			resp, body := get(t, url, http.Header{"X-Prometheus-Scrape-Timeout-Seconds": {"0.5"}})
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, c.status, body)
			}
			own := resp.Header.Get("X-Fleetwatch-Gateway-Error")
			if strings.HasPrefix(c.reason, "status_") {
				if own != "" {
					t.Errorf("the target's own answer is marked as the gateway's: %s", own)
				}
			} else if own != c.reason || strings.Count(strings.TrimSpace(body), "\n") != 0 || body == "" {
				t.Errorf("reason %q, body %q; want reason %q and one line", own, body, c.reason)
			}
			expectCount(t, r, c.reason)
		})
	}
}

// expectCount waits until one fetch with that reason is counted: the metric
// follows the answer.
func expectCount(t *testing.T, r *running, reason string) {
	t.Helper()
	eventually(t, "a fetch counts as "+reason, func() bool {
		families, err := r.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "fleetwatch_collector_gateway_requests_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["job"] == "kubernetes-pods" && labels["reason"] == reason && m.GetCounter().GetValue() == 1 {
					return true
				}
			}
		}
		return false
	})
}

// TestGatewayCutsLateFailures: once the first bytes have gone out, a failure
// must break the connection, for half an answer parses like a whole one.
func TestGatewayCutsLateFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("metric 1\n"), 1000)); err != nil {
					return
				}
			}
		}, "too_large"},
		"dies in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("metric 1\n"), 20000))
			panic(http.ErrAbortHandler)
		}, "broken_answer"},
		"stalls in the middle": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("metric 1\n"), 20000))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, url := startWithTarget(t, c.handler, func(cfg *collector.Config) { cfg.MaxBodyBytes = 1 << 20 })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "1")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err == nil {
				t.Errorf("%d bytes arrived as if they were all", n)
			}
			if n > 1<<20 {
				t.Errorf("%d bytes passed a limit of 1 MiB", n)
			}
			expectCount(t, r, c.reason)
		})
	}
}

func TestGatewayCancellation(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}), make(chan struct{})
	r, url := startWithTarget(t, func(_ http.ResponseWriter, req *http.Request) {
		close(arrived)
		<-req.Context().Done()
		close(gone)
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-arrived
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled scrape succeeded")
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the target is still being fetched for a shard that went away")
	}
	expectCount(t, r, "canceled")
}

func TestGatewayUnknownTarget(t *testing.T) {
	t.Parallel()
	r := start(t, newFakeAPI(t), nil)
	for _, path := range []string{
		"/clusters/a/targets/0123456789abcdef/metrics", "/clusters/b/targets", "/clusters/a/targets/x/../../etc",
		"/clusters/a/targets/http%3A%2F%2F127.0.0.1/metrics",
	} {
		if resp, _ := get(t, r.url+path, nil); resp.StatusCode == http.StatusOK || resp.StatusCode >= 500 {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
}

// TestGatewayConnectionRefused: a target that is gone is a 502 that says so.
func TestGatewayConnectionRefused(t *testing.T) {
	t.Parallel()
	listener := listen(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	r := start(t, newFakeAPI(t, annotatedPod("p", "127.0.0.1", port, nil)), nil)
	list := r.await(t, "the pod is found", func(l target.List) bool { return len(l.Targets) == 1 })
	resp, body := get(t, list.Targets[0].ScrapeURL, nil)
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "connection refused") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	expectCount(t, r, "connection_refused")
}

// TestGatewayConcurrency: beyond the limit a fetch waits, and gives up in time.
func TestGatewayConcurrency(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 10)
	release := make(chan struct{})
	r, url := startWithTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		fmt.Fprintln(w, "up 1")
	}, func(cfg *collector.Config) { cfg.MaxConcurrentScrapes = 1 })
	first := make(chan int, 1)
	go func() {
		resp, _ := get(t, url, nil)
		first <- resp.StatusCode
	}()
	<-arrived
	resp, body := get(t, url, http.Header{"X-Prometheus-Scrape-Timeout-Seconds": {"0.2"}})
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Fleetwatch-Gateway-Error") != "busy" {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	close(release)
	if status := <-first; status != http.StatusOK {
		t.Errorf("the fetch that held the slot: status %d", status)
	}
	if resp, _ := get(t, url, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a fetch after the slot is free: status %d", resp.StatusCode)
	}
	expectCount(t, r, "busy")
}

func TestMetricsAreClean(t *testing.T) {
	t.Parallel()
	r, url := startWithTarget(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }, nil)
	get(t, url, nil)
	expectCount(t, r, "ok")
	problems, err := testutil.GatherAndLint(r.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestListETag(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, annotatedPod("p", "127.0.0.1", "1", nil))
	r := start(t, api, nil)
	r.await(t, "synced", synced)
	url := r.url + "/clusters/a/targets"
	resp, _ := get(t, url, nil)
	etag := resp.Header.Get("ETag")
	if resp.Header.Get("Content-Type") != "application/json" || len(etag) < 10 || resp.ContentLength < 0 {
		t.Errorf("headers %v", resp.Header)
	}
	resp, body := get(t, url, http.Header{"If-None-Match": {`"other", W/` + etag}})
	if resp.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("unchanged list: status %d, %d bytes", resp.StatusCode, len(body))
	}
	var o runtime.Object = annotatedPod("q", "127.0.0.1", "2", nil)
	api.set(o)
	eventually(t, "the list changes", func() bool {
		resp, _ := get(t, url, http.Header{"If-None-Match": {etag}})
		return resp.StatusCode == http.StatusOK
	})
	if resp, _ := get(t, r.url+"/readyz", nil); resp.StatusCode != http.StatusOK {
		t.Error("not ready: " + strconv.Itoa(resp.StatusCode))
	}
}
