package sharder_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a scripted target list.
type collector struct {
	mu   sync.Mutex
	list target.List
	err  error
}

func newCollector(cluster string, pools []target.Pool, targets ...target.Target) *collector {
	return &collector{list: target.List{Cluster: cluster, Synced: true, Pools: pools, Targets: targets}}
}

func (c *collector) set(change func(*target.List)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.list)
}

func (c *collector) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *collector) source() sharder.Source {
	return sharder.Source{Cluster: c.list.Cluster, List: func(context.Context) (target.List, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		out := c.list
		out.Targets = append([]target.Target(nil), c.list.Targets...)
		return out, c.err
	}}
}

// harness is a sharder at work on real shards.
type harness struct {
	*sharder.Sharder
	cfg  sharder.Config
	stop func()
}

func config(tb testing.TB, shards []*shardtest.Shard, cs ...*collector) sharder.Config {
	tb.Helper()
	transport := &http.Transport{}
	tb.Cleanup(transport.CloseIdleConnections)
	cfg := sharder.Config{
		DataDir: tb.TempDir(), Interval: 100 * time.Millisecond, AdoptionWait: time.Minute,
		Transport: transport, Options: sharder.Options{Capacity: 1000},
	}
	for _, s := range shards {
		cfg.Shards = append(cfg.Shards, sharder.ShardAddress{Name: s.Name, URL: s.URL})
	}
	var sources []sharder.Source
	for _, c := range cs {
		sources = append(sources, c.source())
	}
	cfg.Sources = func() []sharder.Source { return sources }
	return cfg
}

func run(tb testing.TB, cfg sharder.Config) *harness {
	tb.Helper()
	s, err := sharder.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	h := &harness{Sharder: s, cfg: cfg}
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("sharder: %v", err)
		}
	})
	tb.Cleanup(h.stop)
	return h
}

// cycles waits for so many more whole cycles.
func (h *harness) cycles(tb testing.TB, n int64) {
	tb.Helper()
	from := h.Snapshot().Cycle.Number
	shardtest.Eventually(tb, 20*time.Second, fmt.Sprintf("%d cycles", n), func() error {
		if now := h.Snapshot().Cycle.Number; now < from+n {
			return fmt.Errorf("%d done", now-from)
		}
		return nil
	})
}

func (h *harness) view(tb testing.TB, id string) sharder.TargetView {
	tb.Helper()
	for _, t := range h.Snapshot().Targets {
		if t.ID == id {
			return t
		}
	}
	tb.Fatalf("target %s is not in the snapshot", id)
	return sharder.TargetView{}
}

func (h *harness) allUp(tb testing.TB, n int) {
	tb.Helper()
	shardtest.Eventually(tb, 20*time.Second, fmt.Sprintf("%d targets are up", n), func() error {
		if s := h.Snapshot(); s.Up != n || s.Assigned != n || s.Unassigned != 0 {
			return fmt.Errorf("up %d assigned %d unassigned %d, cycle %+v", s.Up, s.Assigned, s.Unassigned, s.Cycle)
		}
		return nil
	})
}

// scrapers are the shards that scrape a target.
func scrapers(tb testing.TB, shards []*shardtest.Shard, id string) []string {
	tb.Helper()
	var out []string
	for _, s := range shards {
		if s.Target(tb, id) != nil {
			out = append(out, s.Name)
		}
	}
	return out
}

func twoShards(tb testing.TB) []*shardtest.Shard {
	tb.Helper()
	return []*shardtest.Shard{shardtest.Start(tb, "shard-0", tb.TempDir()), shardtest.Start(tb, "shard-1", tb.TempDir())}
}

func TestPlacesByMeasuredWeight(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "500ms"), shardtest.Pool("beta", "node", "500ms")}
	a := newCollector("alpha", pools[:1], g.Target("alpha", "node", 1, 600), g.Target("alpha", "node", 2, 500))
	b := newCollector("beta", pools[1:], g.Target("beta", "node", 3, 200), g.Target("beta", "node", 4, 300))
	h := run(t, config(t, shards, a, b))
	h.allUp(t, 4)
	for id, want := range map[int]string{1: "shard-0", 2: "shard-1", 3: "shard-0", 4: "shard-1"} {
		got := h.view(t, fmt.Sprintf("%016x", id))
		if got.Shard != want || got.WeightFrom != "scrape" || got.Weight%100 != 5 || got.Reason != "best fit by weight" {
			t.Errorf("target %d: %+v, want %s", id, got, want)
		}
		if on := scrapers(t, shards, got.ID); len(on) != 1 || on[0] != want {
			t.Errorf("target %d is scraped by %v", id, on)
		}
	}
	s := h.Snapshot()
	if sh := s.Shards[0]; !sh.Up || !sh.InForce || sh.Targets != 2 || sh.Weight != 810 || sh.HeadSeries != 810 || sh.Fill != 0.81 || sh.LastError != "" {
		t.Errorf("shard-0: %+v", sh)
	}
	if len(s.Clusters) != 2 || !s.Clusters[0].Synced || s.Clusters[0].Targets != 2 || s.Cycle.Errors != nil {
		t.Errorf("clusters %+v, cycle %+v", s.Clusters, s.Cycle)
	}
}

func TestDownTargetIsPlacedByAnEstimate(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	a, b := g.Target("alpha", "node", 1, 400), g.Target("alpha", "node", 2, 400)
	g.Fail(b.ID, http.StatusServiceUnavailable)
	h := run(t, config(t, shards, newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "300ms")}, a, b)))
	shardtest.Eventually(t, 10*time.Second, "b is known to be down", func() error {
		s := h.Snapshot()
		if s.Down != 1 || s.Up != 1 {
			return fmt.Errorf("up %d down %d", s.Up, s.Down)
		}
		return nil
	})
	if got := h.view(t, b.ID); got.Weight != 405 || got.WeightFrom != "estimate" || got.Shard == "" {
		t.Errorf("down target: %+v", got)
	}
	g.Fail(b.ID, 0)
	h.allUp(t, 2)
}

func TestDownTargetIsExplainedByItsCollector(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	a := g.Target("alpha", "node", 1, 40)
	g.Fail(a.ID, http.StatusBadGateway)
	const why = "connection_refused: dial tcp 10.0.0.1:9100: connect: connection refused"
	var old atomic.Bool // a collector that does not serve the errors
	old.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = target.List{Cluster: "alpha", Synced: true, Pools: []target.Pool{shardtest.Pool("alpha", "node", "300ms")}, Targets: []target.Target{a}}
		switch {
		case r.URL.Path == "/clusters/alpha/targets":
		case r.URL.Path == "/clusters/alpha/errors" && !old.Load():
			answer = map[string]any{"errors": map[string]string{a.ID: why}}
		default:
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	cfg := config(t, shards)
	source := sharder.HTTPSource("alpha", server.URL+"/clusters/alpha/targets", server.Client())
	cfg.Sources = func() []sharder.Source { return []sharder.Source{source} }
	h := run(t, cfg)
	says := func(want string) {
		t.Helper()
		shardtest.Eventually(t, 10*time.Second, "the target says "+want, func() error {
			for _, v := range h.Snapshot().Targets {
				if v.Health == target.HealthDown && strings.Contains(v.LastError, want) {
					return nil
				}
			}
			return fmt.Errorf("%+v", h.Snapshot().Targets)
		})
	}
	says("HTTP status 502")
	old.Store(false)
	says(why)
}

func TestShardThatDoesNotStoreSaysSo(t *testing.T) {
	const why = "is not storing: no space left in /data; free some"
	var answers atomic.Bool // the shard runs, and says so in its status
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var answer any = map[string]string{"error": why}
		if answers.Load() {
			answer = target.Status{Shard: "shard-0", StorageError: why}
		} else {
			w.WriteHeader(http.StatusInsufficientStorage)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	h := run(t, config(t, []*shardtest.Shard{{Name: "shard-0", URL: server.URL}}))
	for _, up := range []bool{false, true} {
		answers.Store(up)
		shardtest.Eventually(t, 10*time.Second, "the shard is shown as not storing", func() error {
			if v := h.Snapshot().Shards[0]; v.Up != up || v.Storing || v.LastError != why {
				return fmt.Errorf("%+v", v)
			}
			return nil
		})
	}
}

func TestOnlyACompleteListRemoves(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	a, b := g.Target("alpha", "node", 1, 10), g.Target("alpha", "node", 2, 10)
	c := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "300ms")}, a, b)
	h := run(t, config(t, shards, c))
	h.allUp(t, 2)
	for name, change := range map[string]func(*target.List){
		"not synced": func(l *target.List) { l.Synced = false },
		"with error": func(l *target.List) { l.Error = "watch of pods broke" },
	} {
		c.set(func(l *target.List) { l.Synced, l.Error, l.Targets = true, "", []target.Target{a, b} })
		c.set(func(l *target.List) { l.Targets = nil; change(l) })
		h.cycles(t, 2)
		if s := h.Snapshot(); s.Assigned != 2 {
			t.Errorf("%s: %d targets left", name, s.Assigned)
		}
	}
	c.fail(errors.New("connection refused"))
	h.cycles(t, 2)
	if s := h.Snapshot(); s.Assigned != 2 || len(s.Cycle.Errors) != 1 || !strings.Contains(s.Clusters[0].Error, "refused") {
		t.Errorf("collector down: %d targets, cycle %+v, clusters %+v", s.Assigned, s.Cycle, s.Clusters)
	}
	c.fail(nil)
	c.set(func(l *target.List) { l.Synced, l.Error, l.Targets = true, "", []target.Target{b} })
	shardtest.Eventually(t, 10*time.Second, "a is gone", func() error {
		if on := scrapers(t, shards, a.ID); len(on) > 0 {
			return fmt.Errorf("scraped by %v", on)
		}
		return nil
	})
}

func TestClusterThatLeavesTakesItsTargets(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "300ms"), shardtest.Pool("beta", "node", "300ms")}
	a := newCollector("alpha", pools[:1], g.Target("alpha", "node", 1, 10))
	b := newCollector("beta", pools[1:], g.Target("beta", "node", 2, 10))
	var mu sync.Mutex
	sources := []sharder.Source{a.source(), b.source()}
	cfg := config(t, shards)
	cfg.Sources = func() []sharder.Source { mu.Lock(); defer mu.Unlock(); return sources }
	h := run(t, cfg)
	h.allUp(t, 2)
	mu.Lock()
	sources = nil // not known: nothing leaves
	mu.Unlock()
	h.cycles(t, 2)
	if s := h.Snapshot(); s.Assigned != 2 {
		t.Errorf("%d targets left while the clusters are not known", s.Assigned)
	}
	mu.Lock()
	sources = []sharder.Source{b.source()}
	mu.Unlock()
	h.allUp(t, 1)
}

func TestRestartMovesNothing(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	var targets []target.Target
	for i := range 20 {
		targets = append(targets, g.Target("alpha", "node", i+1, 60+i))
	}
	c := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "500ms")}, targets...)
	cfg := config(t, shards, c)
	h := run(t, cfg)
	h.allUp(t, 20)
	where := func() string {
		var out strings.Builder
		for _, tv := range h.Snapshot().Targets {
			fmt.Fprintln(&out, tv.ID, tv.Shard)
		}
		return out.String()
	}
	before, epoch := where(), h.Snapshot().Epoch
	for _, lost := range []bool{false, true} {
		h.stop()
		if lost {
			// The shards know what they scrape, and refuse older epochs.
			if err := os.RemoveAll(filepath.Join(cfg.DataDir, "sharder")); err != nil {
				t.Fatal(err)
			}
		}
		h = run(t, cfg)
		h.allUp(t, 20)
		if after := where(); after != before {
			t.Errorf("state lost %v: targets moved:\n%s\nto\n%s", lost, before, after)
		}
		if now := h.Snapshot().Epoch; now <= epoch {
			t.Errorf("state lost %v: epoch %d after %d", lost, now, epoch)
		} else {
			epoch = now
		}
		h.cycles(t, 2)
		for _, sh := range h.Snapshot().Shards {
			if !sh.InForce || sh.LastError != "" {
				t.Errorf("state lost %v: %+v", lost, sh)
			}
		}
	}
}

func TestCorruptStateIsSetAside(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	cfg := config(t, shards, newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "500ms")}, g.Target("alpha", "node", 1, 10)))
	file := filepath.Join(cfg.DataDir, "sharder", "state.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := run(t, cfg)
	h.allUp(t, 1)
	if _, err := os.Stat(file + ".corrupt"); err != nil {
		t.Error(err)
	}
}

func TestShardThatIsAwayKeepsItsTargets(t *testing.T) {
	g := shardtest.NewGateway(t)
	dir := t.TempDir()
	shards := []*shardtest.Shard{shardtest.Start(t, "shard-0", dir), shardtest.Start(t, "shard-1", t.TempDir())}
	a, b := g.Target("alpha", "node", 1, 600), g.Target("alpha", "node", 2, 500)
	c := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "300ms")}, a, b)
	h := run(t, config(t, shards, c))
	h.allUp(t, 2)
	address := strings.TrimPrefix(shards[0].URL, "http://")
	shards[0].Stop()
	shardtest.Eventually(t, 10*time.Second, "shard-0 is shown as down", func() error {
		if sh := h.Snapshot().Shards[0]; sh.Up || sh.LastError == "" {
			return fmt.Errorf("%+v", sh)
		}
		return nil
	})
	// What comes meanwhile goes to the other; a goes for good while its shard is away.
	late := g.Target("alpha", "node", 3, 10)
	c.set(func(l *target.List) { l.Targets = append(l.Targets, late) })
	h.cycles(t, 3)
	if got := h.view(t, a.ID); got.Shard != "shard-0" || got.Health != target.HealthUnknown {
		t.Errorf("target of a shard that is away: %+v", got)
	}
	if got := h.view(t, late.ID); got.Shard != "shard-1" {
		t.Errorf("late target: %+v", got)
	}
	c.set(func(l *target.List) { l.Targets = []target.Target{b, late} })
	h.cycles(t, 2)
	// It comes back without its disk.
	shards[0] = shardtest.StartAt(t, "shard-0", t.TempDir(), address)
	c.set(func(l *target.List) { l.Targets = []target.Target{a, b, late} })
	h.allUp(t, 3)
}

func TestNewerSharderWins(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	c := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "300ms")}, g.Target("alpha", "node", 1, 10))
	old := run(t, config(t, shards, c))
	old.allUp(t, 1)
	fresh := run(t, config(t, shards, c))
	fresh.allUp(t, 1)
	shardtest.Eventually(t, 10*time.Second, "the older one sees that it is fenced", func() error {
		for _, sh := range old.Snapshot().Shards {
			if !strings.Contains(sh.LastError, "newer sharder") {
				return fmt.Errorf("%+v", sh)
			}
		}
		return nil
	})
	for _, sh := range fresh.Snapshot().Shards {
		if !sh.InForce {
			t.Errorf("%+v", sh)
		}
	}
}

func TestHungCollectorDelaysNobodyTwice(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	a := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "300ms")}, g.Target("alpha", "node", 1, 10))
	cfg := config(t, shards)
	hung := sharder.Source{Cluster: "beta", List: func(ctx context.Context) (target.List, error) {
		<-ctx.Done()
		return target.List{}, ctx.Err()
	}}
	cfg.ListWait, cfg.ListTimeout = 500*time.Millisecond, time.Minute
	cfg.Sources = func() []sharder.Source { return []sharder.Source{a.source(), hung} }
	h := run(t, cfg)
	h.allUp(t, 1)
	h.cycles(t, 2)
	if d := h.Snapshot().Cycle.Duration; d > 400*time.Millisecond {
		t.Errorf("a cycle took %s beside a hung collector", d)
	}
}

func TestHTTPSourceAsksForChangesOnly(t *testing.T) {
	var sent, unchanged int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"v1"` {
			unchanged++
			w.WriteHeader(http.StatusNotModified)
			return
		}
		sent++
		w.Header().Set("ETag", `"v1"`)
		_ = json.NewEncoder(w).Encode(target.List{Cluster: "alpha", Synced: true, Targets: []target.Target{{ID: "1"}}})
	}))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	src := sharder.HTTPSource("alpha", server.URL, client)
	for range 3 {
		list, err := src.List(t.Context())
		if err != nil || !list.Synced || len(list.Targets) != 1 {
			t.Fatalf("%+v %v", list, err)
		}
	}
	if sent != 1 || unchanged != 2 {
		t.Errorf("body sent %d times, unchanged %d times", sent, unchanged)
	}
	server.Config.Handler = http.NotFoundHandler()
	if _, err := src.List(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster alpha") || !strings.Contains(err.Error(), "404") {
		t.Errorf("error: %v", err)
	}
}

func TestConfigErrorsAreNamed(t *testing.T) {
	_, err := sharder.New(sharder.Config{Options: sharder.Options{Fill: 2}, Shards: []sharder.ShardAddress{{Name: "a"}}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"data folder", "sources", `shard "a"`, "planner options"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestMetricsAreLintClean(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := sharder.New(sharder.Config{
		DataDir: t.TempDir(), Sources: func() []sharder.Source { return nil },
		Shards: []sharder.ShardAddress{{Name: "a", URL: "http://127.0.0.1:1"}}, Registerer: reg,
	}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
