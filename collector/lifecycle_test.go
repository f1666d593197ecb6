package collector_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// lines is a log that tests may read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestTargetsFollowTheCluster(t *testing.T) {
	t.Parallel()
	one, two := annotatedPod("one", "127.0.0.1", "1", nil), annotatedPod("two", "127.0.0.1", "2", nil)
	api := newFakeAPI(t, one)
	r := start(t, api, nil)
	first := r.await(t, "one pod", func(l target.List) bool { return l.Synced && len(l.Targets) == 1 })
	api.set(two)
	r.await(t, "two pods", func(l target.List) bool { return len(l.Targets) == 2 })
	api.remove(two)
	again := r.await(t, "one pod again", func(l target.List) bool { return len(l.Targets) == 1 })
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the list is not what it was:\n%s", diff)
	}
	one.Status.PodIP = "127.0.0.2"
	api.set(one)
	r.await(t, "the pod moves", func(l target.List) bool {
		return len(l.Targets) == 1 && l.Targets[0].ID != first.Targets[0].ID
	})
}

// TestOutage: an API server that goes away takes nothing from the list, stops
// no fetch, is named in the list and logged once; its return needs nobody.
func TestOutage(t *testing.T) {
	t.Parallel()
	host, port := serveTarget(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") })
	api := newFakeAPI(t, annotatedPod("one", host, port, nil))
	log := &lines{}
	r := start(t, api, func(cfg *collector.Config) { cfg.Logger = log.logger() })
	before := r.await(t, "one pod", func(l target.List) bool { return l.Synced && len(l.Targets) == 1 })

	api.stop()
	during := r.await(t, "the list says so", func(l target.List) bool { return l.Error != "" })
	if !during.Synced || !cmp.Equal(before.Targets, during.Targets) {
		t.Errorf("the targets did not stay: %+v", during)
	}
	if !strings.HasPrefix(during.Error, "since 2") || !strings.Contains(during.Error, api.address) {
		t.Errorf("the error does not say since when and what: %s", during.Error)
	}
	if resp, body := get(t, before.Targets[0].ScrapeURL, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a fetch during the outage: status %d: %s", resp.StatusCode, body)
	}
	if resp, body := get(t, r.url+"/readyz", nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, "stale") {
		t.Errorf("readyz during the outage: %d %s", resp.StatusCode, body)
	}

	api.set(annotatedPod("two", host, port, map[string]string{"prometheus.io/path": "/two"}))
	api.start()
	r.await(t, "discovery goes on", func(l target.List) bool { return l.Error == "" && len(l.Targets) == 2 })
	if degraded, well := log.count("discovery is degraded"), log.count("discovery works again"); degraded != 1 || well != 1 {
		t.Errorf("the outage was logged %d times, its end %d times", degraded, well)
	}
}

// TestStartDuringOutage: without an answer there are no targets, and the list
// does not claim to be complete.
func TestStartDuringOutage(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, annotatedPod("one", "127.0.0.1", "1", nil))
	cfg := api.config()
	api.stop()
	r := start(t, api, func(c *collector.Config) { c.REST = cfg })
	list := r.await(t, "the list says why", func(l target.List) bool { return l.Error != "" })
	if list.Synced || len(list.Targets) != 0 || len(list.Pools) == 0 {
		t.Errorf("%+v", list)
	}
	if resp, _ := get(t, r.url+"/readyz", nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", resp.StatusCode)
	}
	if resp, _ := get(t, r.url+"/healthz", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("not healthy: %d", resp.StatusCode)
	}
	api.start()
	r.await(t, "it recovers", func(l target.List) bool { return l.Synced && l.Error == "" && len(l.Targets) == 1 })
}

// TestStopDuringOutage: while the API server refuses connections the
// informers pause longer and longer; none of that delays the end.
func TestStopDuringOutage(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	cfg := api.config()
	api.stop()
	r := start(t, api, func(c *collector.Config) { c.REST = cfg })
	eventually(t, "watches have failed", func() bool {
		families, err := r.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		failures := 0.0
		for _, f := range families {
			if f.GetName() == "fleetwatch_collector_discovery_failures_total" {
				for _, m := range f.GetMetric() {
					failures += m.GetCounter().GetValue()
				}
			}
		}
		return failures >= 12 // the pauses are longer than the bound below
	})
	before := time.Now()
	r.stop()
	if took := time.Since(before); took > time.Second {
		t.Errorf("it took %v to stop", took)
	}
}

// TestRestartKeepsIDs: another process finds the same targets under the same
// IDs, whatever order the objects come in.
func TestRestartKeepsIDs(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, objectsOf(t, "testdata/profile/kubeadm.yaml")...)
	external := func(cfg *collector.Config) { cfg.ExternalURL = "http://collector.example/" }
	first := start(t, api, external)
	one := first.await(t, "discovery has delivered", synced)
	first.stop()
	two := start(t, api, external).await(t, "discovery has delivered", synced)
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("a restart changes the list:\n%s", diff)
	}
	if want := map[string]int{
		"kube-apiserver": 2, "etcd": 2, "kube-controller-manager": 1, "kube-scheduler": 1, "kubelet": 2, "cadvisor": 2,
		"kube-state-metrics": 1, "node-exporter": 2, "coredns": 1,
	}; !cmp.Equal(want, jobsOf(one)) {
		t.Errorf("targets by job: %v", jobsOf(one))
	}
}

// TestWatchesAreShared: all of the profile's jobs cost the API server one watch
// for each kind of object.
func TestWatchesAreShared(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, objectsOf(t, "testdata/profile/kubeadm.yaml")...)
	r := start(t, api, nil)
	r.await(t, "discovery has delivered", synced)
	want := map[string]int{"pods": 1, "nodes": 1, "services": 1, "endpointslices": 1}
	if got := api.watches(); !cmp.Equal(want, got) {
		t.Errorf("watches: %v", got)
	}
}
