package sharder_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/internal/testprogram"
	"github.com/fleetwatch-io/fleetwatch/sharder"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/shardtest"
	"github.com/fleetwatch-io/fleetwatch/sharder/shard"
)

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// output keeps what a child prints, for the log of a failed test.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// start runs a child until the end of the test and waits until ready answers.
func start(t *testing.T, path, ready string, args ...string) {
	t.Helper()
	var out output
	cmd := exec.Command(path, args...) //nolint:noctx // ended below, after what depends on it
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s %s:\n%s", filepath.Base(path), strings.Join(args, " "), out.buf.String())
		}
	})
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	shardtest.Eventually(t, 60*time.Second, filepath.Base(path)+" "+args[0]+" is ready", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ready, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("HTTP %s", answer.Status)
		}
		return nil
	})
}

// TestMovedTargetSeenThroughThanos moves a target between two shards behind
// real sidecars and Thanos Query, once for each way to merge replicas: its
// series are there at every second, and rates stay within 1 %.
func TestMovedTargetSeenThroughThanos(t *testing.T) {
	const interval, counters = 5 * time.Second, 100
	thanos := testprogram.Path(t, "thanos")
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	var endpoints []string
	for _, s := range shards {
		grpc, web := freePort(t), freePort(t)
		start(t, thanos, "http://"+web+"/-/ready", "sidecar", "--prometheus.url", s.URL,
			"--tsdb.path", shard.TSDBDir(s.Dir), "--grpc-address", grpc, "--http-address", web)
		endpoints = append(endpoints, "--endpoint", grpc)
	}
	queries := map[string]string{}
	for _, merge := range []string{"penalty", "chain"} {
		web := freePort(t)
		start(t, thanos, "http://"+web+"/-/ready", append([]string{
			"query", "--http-address", web, "--grpc-address", freePort(t),
			"--query.replica-label", "shard", "--query.replica-label", "replica", "--deduplication.func", merge,
		}, endpoints...)...)
		queries[merge] = "http://" + web
	}

	moving, still := g.Target("alpha", "node", 1, counters), g.Target("alpha", "node", 2, 10)
	c := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", interval.String())}, moving, still)
	cfg := config(t, shards, c)
	cfg.Interval = time.Second
	h := run(t, cfg)
	h.allUp(t, 2)
	scraped := time.Now()
	until(t, scraped.Add(7*interval+2*time.Second))
	from := h.view(t, moving.ID).Shard
	to := map[string]string{"shard-0": "shard-1", "shard-1": "shard-0"}[from]
	began := time.Now()
	if err := h.Move(t.Context(), moving.ID, to); err != nil {
		t.Fatal(err)
	}
	t.Logf("the hand-over took %s", time.Since(began).Round(time.Millisecond))
	until(t, began.Add(8*interval))

	for merge, query := range queries {
		t.Run(merge, func(t *testing.T) { checkSeries(t, query, scraped.Add(interval), time.Now(), interval, counters) })
	}
	if on := scrapers(t, shards, moving.ID); len(on) != 1 || on[0] != to {
		t.Errorf("scraped by %v, want %s", on, to)
	}
	if v := h.view(t, moving.ID); v.State != sharder.StateAssigned || v.Health != target.HealthUp {
		t.Errorf("after the move: %+v", v)
	}
}

func checkSeries(t *testing.T, query string, from, to time.Time, interval time.Duration, counters float64) {
	t.Helper()
	from, to = from.Truncate(time.Second).Add(time.Second), to.Truncate(time.Second)
	steps := int(to.Sub(from).Seconds()) + 1
	for expr, want := range map[string]float64{
		`count(work_total{instance="10.0.0.1:9100"})`: counters,
		`count(up{cluster="alpha"} == 1)`:             2,
	} {
		got := shardtest.QueryRange(t, query, expr, from, to, time.Second)
		if len(got) != 1 || len(got[0].Points) != steps {
			t.Fatalf("%s: %d series; want one with %d points", expr, len(got), steps)
		}
		for at, v := range got[0].Points {
			if v != want {
				t.Errorf("%s at %.0f s: %v, want %v", expr, at-float64(from.Unix()), v, want)
			}
		}
	}
	window := 6 * interval
	rates := fmt.Sprintf(`rate(work_total{instance="10.0.0.1:9100"}[%s])`, window)
	worst := 0.0
	for _, agg := range []string{"min", "max"} {
		got := shardtest.QueryRange(t, query, agg+"("+rates+")", from.Add(window), to, time.Second)
		if len(got) != 1 {
			t.Fatalf("%s: %d series", rates, len(got))
		}
		for at, v := range got[0].Points {
			off := max(v-1, 1-v)
			worst = max(worst, off)
			if off > 0.01 {
				t.Errorf("%s of %s at %.0f s: %v, want 1 within 1 %%", agg, rates, at-float64(from.Unix()), v)
			}
		}
	}
	t.Logf("%d steps of 1 s complete; rate[%s] off by %.2f %% at most", steps, window, 100*worst)
}

// until waits for a moment: samples come with time, and nothing else tells
// that enough of them are there.
func until(t *testing.T, at time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
