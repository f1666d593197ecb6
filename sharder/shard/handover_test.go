package shard_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/shardtest"
)

// gone reports whether an instant query shows none of a target's counters:
// stale markers take them away at once, their absence after five minutes.
func gone(tb testing.TB, s *shardtest.Shard, id target.Target) bool {
	tb.Helper()
	return len(shardtest.Query(tb, s.URL, fmt.Sprintf("work_total{instance=%q}", id.Labels["instance"]), time.Now())) == 0
}

func TestTargetGoneForGoodGoesStale(t *testing.T) {
	g := shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a, b := g.Target("alpha", "node", 1, 3), g.Target("alpha", "app", 2, 3)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "200ms"), shardtest.Pool("alpha", "app", "200ms")}
	s.Put(t, assignment(1, 1, pools, a, b))
	shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))
	shardtest.Eventually(t, 5*time.Second, "b is up", isUp(t, s, b.ID))
	// a leaves a pool that stays; b takes its whole pool along.
	applied, _ := s.Put(t, assignment(1, 2, pools[:1]))
	if len(applied.LastSamples) != 0 {
		t.Errorf("last samples of targets that were not handed over: %v", applied.LastSamples)
	}
	for _, x := range []target.Target{a, b} {
		shardtest.Eventually(t, 5*time.Second, x.Job+" goes stale", func() error {
			if !gone(t, s, x) {
				return fmt.Errorf("still there")
			}
			return nil
		})
	}
}

func TestHandedOverTargetStopsWithoutMarkers(t *testing.T) {
	const interval = 200 * time.Millisecond
	for _, c := range []struct {
		name     string
		poolToo  bool // the pool leaves with its last target
		reconfig bool // the pool changes in the same step
	}{{name: "pool stays"}, {name: "pool leaves", poolToo: true}, {name: "pool changes", reconfig: true}} {
		t.Run(c.name, func(t *testing.T) {
			g := shardtest.NewGateway(t)
			s := shardtest.Start(t, "shard-0", t.TempDir())
			a, b := g.Target("alpha", "node", 1, 3), g.Target("alpha", "node", 2, 3)
			pools := []target.Pool{shardtest.Pool("alpha", "node", "200ms")}
			targets := []target.Target{a, b}
			if c.poolToo {
				targets = targets[:1]
			}
			s.Put(t, assignment(1, 1, pools, targets...))
			shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))

			next := assignment(1, 2, pools, targets[1:]...)
			next.HandedOver = []string{a.ID, "0000000000000009"}
			if c.poolToo {
				next.Pools = nil
			}
			if c.reconfig {
				next.Pools = []target.Pool{shardtest.Pool("alpha", "node", "200ms", "sample_limit: 50")}
			}
			start := time.Now()
			applied, code := s.Put(t, next)
			took := time.Since(start)
			if code != http.StatusOK || len(applied.LastSamples) != 1 {
				t.Fatalf("hand-over: HTTP %d %+v", code, applied)
			}
			if took > 500*time.Millisecond {
				t.Errorf("hand-over took %s", took)
			}
			again, _ := s.Put(t, next)
			if fmt.Sprint(again) != fmt.Sprint(applied) {
				t.Errorf("same revision again: %+v, want %+v", again, applied)
			}
			count := g.Scrapes(a.ID)
			last := time.UnixMilli(applied.LastSamples[a.ID])
			if ago := start.Sub(last); ago < -took || ago > 2*interval {
				t.Errorf("last sample %s before the stop", ago)
			}
			got := shardtest.Query(t, s.URL, `timestamp(up{instance="10.0.0.1:9100"})`, time.Now())
			if len(got) != 1 || int64(got[0].Value()*1000+0.5) != last.UnixMilli() {
				t.Errorf("newest sample in the head %+v, want %d", got, last.UnixMilli())
			}
			// Markers would come 2.1 intervals after the stop.
			shardtest.Eventually(t, 5*time.Second, "the time for markers passes", func() error {
				if time.Since(start) < 5*interval {
					return fmt.Errorf("not yet")
				}
				return nil
			})
			if gone(t, s, a) {
				t.Error("stale markers were written")
			}
			if g.Scrapes(a.ID) != count {
				t.Error("the target was scraped after its hand-over")
			}
		})
	}
}

func TestHandOverWaitsForTheScrapeInFlight(t *testing.T) {
	g := shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a := g.Target("alpha", "node", 1, 3)
	s.Put(t, assignment(1, 1, []target.Pool{shardtest.Pool("alpha", "node", "2s")}, a))
	shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))
	release := g.Hold(a.ID)
	count := g.Scrapes(a.ID)
	shardtest.Eventually(t, 5*time.Second, "a scrape hangs", func() error {
		if g.Scrapes(a.ID) == count {
			return fmt.Errorf("no scrape yet")
		}
		return nil
	})
	asked := time.Now()
	released := make(chan struct{})
	go func() {
		defer close(released)
		<-time.After(300 * time.Millisecond)
		release()
	}()
	next := assignment(1, 2, nil)
	next.HandedOver = []string{a.ID}
	applied, code := s.Put(t, next)
	<-released
	if code != http.StatusOK {
		t.Fatalf("HTTP %d", code)
	}
	if took := time.Since(asked); took < 300*time.Millisecond {
		t.Errorf("answered after %s, while a scrape was in flight", took)
	}
	// The sample of the scrape that was waited for is the last one.
	if last := time.UnixMilli(applied.LastSamples[a.ID]); asked.Sub(last) > 500*time.Millisecond {
		t.Errorf("last sample is %s old", asked.Sub(last))
	}
}

func TestNewAddressOfTheSameTarget(t *testing.T) {
	g1, g2 := shardtest.NewGateway(t), shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a := g1.Target("alpha", "node", 1, 3)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "200ms")}
	s.Put(t, assignment(1, 1, pools, a))
	shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))
	moved := g2.Target("alpha", "node", 1, 3)
	if _, code := s.Put(t, assignment(1, 2, pools, moved)); code != http.StatusOK {
		t.Fatalf("HTTP %d", code)
	}
	count := g1.Scrapes(a.ID)
	shardtest.Eventually(t, 5*time.Second, "the new address is scraped", func() error {
		if g2.Scrapes(a.ID) < 5 {
			return fmt.Errorf("%d scrapes", g2.Scrapes(a.ID))
		}
		return nil
	})
	if g1.Scrapes(a.ID) != count {
		t.Error("the old address is still scraped")
	}
	if gone(t, s, a) {
		t.Error("the series went stale")
	}
}

func TestProbeCountsAndThrowsAway(t *testing.T) {
	g := shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a := g.Target("alpha", "node", 1, 25)
	broken := g.Target("alpha", "node", 2, 1)
	g.Fail(broken.ID, http.StatusBadGateway)
	plain := shardtest.Pool("alpha", "node", "2s")
	for _, c := range []struct {
		name   string
		pool   target.Pool
		target target.Target
		series int64
		err    string
	}{
		{"plain", plain, a, 25, ""},
		{"relabelled", shardtest.Pool("alpha", "node", "2s", `metric_relabel_configs: [{source_labels: [n], regex: "1.?", action: drop}]`), a, 14, ""},
		{"by target label", shardtest.Pool("alpha", "node", "2s", `metric_relabel_configs: [{source_labels: [cluster], regex: alpha, action: drop}]`), a, 0, ""},
		{"over the limit", shardtest.Pool("alpha", "node", "2s", "sample_limit: 10"), a, 25, "25 samples are more than the sample_limit of 10"},
		{"body too large", shardtest.Pool("alpha", "node", "2s", "body_size_limit: 100B"), a, 0, "body is larger than 100 bytes"},
		{"down", plain, broken, 0, "server returned HTTP status 502 Bad Gateway"},
		{"bad pool", target.Pool{Name: "alpha/node", Config: "[]"}, a, 0, "pool alpha/node: want one scrape_config as a YAML mapping"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, code := s.Probe(t, target.ProbeRequest{Pool: c.pool, Target: c.target})
			if code != http.StatusOK || got.Series != c.series || got.Error != c.err || got.Duration <= 0 {
				t.Errorf("HTTP %d %+v, want %d series, error %q", code, got, c.series, c.err)
			}
		})
	}
	if got := s.Status(t); got.HeadSeries != 0 || len(got.Targets) != 0 {
		t.Errorf("probes left something behind: %+v", got)
	}
}
