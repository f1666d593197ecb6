package sharder_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/shardtest"
)

// faults is a network that fails on request.
type faults struct {
	http.Transport

	mu     sync.Mutex
	armed  func(r *http.Request) bool // picks the request to fail, once
	lose   bool                       // deliver it, but lose the answer
	dead   bool                       // nothing gets through any more
	struck func()                     // called when the armed request came
}

var errFault = errors.New("scripted network fault")

// arm fails the next request to url with the method: before it arrives, or
// after, with only its answer lost.
func (f *faults) arm(method, url string, lose bool, struck func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose, f.struck = lose, struck
	f.armed = func(r *http.Request) bool { return r.Method == method && strings.HasPrefix(r.URL.String(), url) }
}

func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	dead, hit := f.dead, f.armed != nil && f.armed(r)
	lose, struck := f.lose, f.struck
	if hit {
		f.armed = nil
	}
	f.mu.Unlock()
	if dead {
		return nil, errFault
	}
	if !hit {
		return f.Transport.RoundTrip(r)
	}
	if lose {
		answer, err := f.Transport.RoundTrip(r)
		if err == nil {
			_ = answer.Body.Close() // the answer is lost on purpose
		}
	}
	if struck != nil {
		struck()
	}
	return nil, errFault
}

// stage is one target that both shards could scrape, at work on shard-0.
type stage struct {
	shards []*shardtest.Shard
	gate   *shardtest.Gateway
	target target.Target
	list   *collector
	net    *faults
	h      *harness
}

func newStage(t *testing.T) *stage {
	t.Helper()
	st := &stage{gate: shardtest.NewGateway(t), shards: twoShards(t), net: &faults{}}
	t.Cleanup(st.net.CloseIdleConnections)
	st.target = st.gate.Target("alpha", "node", 1, 20)
	st.list = newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "200ms")}, st.target)
	cfg := config(t, st.shards, st.list)
	cfg.Transport = st.net
	st.h = run(t, cfg)
	st.h.allUp(t, 1)
	if on := scrapers(t, st.shards, st.target.ID); len(on) != 1 || on[0] != "shard-0" {
		t.Fatalf("the target begins on %v", on)
	}
	return st
}

// onlyOn waits until exactly that shard scrapes the target, by its own word
// and by the sharder's, with nothing in flight.
func (st *stage) onlyOn(t *testing.T, h *harness, want string) {
	t.Helper()
	shardtest.Eventually(t, 10*time.Second, "the target is on "+want+" only", func() error {
		on, v := scrapers(t, st.shards, st.target.ID), h.view(t, st.target.ID)
		if len(on) != 1 || on[0] != want || v.Shard != want || v.State != sharder.StateAssigned || v.Health != target.HealthUp {
			return fmt.Errorf("scraped by %v, view %+v", on, v)
		}
		return nil
	})
}

// noMarkers checks that neither shard wrote stale markers: both still show
// the target's series in an instant query.
func (st *stage) noMarkers(t *testing.T, on ...string) {
	t.Helper()
	start := time.Now()
	shardtest.Eventually(t, 5*time.Second, "the time for markers passes", func() error {
		if time.Since(start) < time.Second { // five intervals
			return errors.New("not yet")
		}
		return nil
	})
	for _, s := range st.shards {
		for _, name := range on {
			if got := shardtest.Query(t, s.URL, "work_total", time.Now()); s.Name == name && len(got) != 20 {
				t.Errorf("%s shows %d of 20 series", s.Name, len(got))
			}
		}
	}
}

func TestMoveHandsOver(t *testing.T) {
	st := newStage(t)
	start := time.Now()
	if err := st.h.Move(t.Context(), st.target.ID, "shard-1"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("the move took %s", took)
	}
	if got := st.shards[1].Target(t, st.target.ID); got == nil || got.LastScrape.IsZero() {
		t.Errorf("not scraped by the destination when Move returned: %+v", got)
	}
	st.onlyOn(t, st.h, "shard-1")
	v := st.h.view(t, st.target.ID)
	if v.Reason != "moved by a user" || time.Until(v.HoldUntil) < 23*time.Hour {
		t.Errorf("after the move: %+v", v)
	}
	st.noMarkers(t, "shard-0", "shard-1")
	// The samples of both shards together are about one interval apart.
	times := map[float64]bool{}
	for _, s := range st.shards {
		for _, series := range shardtest.QueryRange(t, s.URL, "timestamp(up)", start.Add(-2*time.Second), start.Add(2*time.Second), 20*time.Millisecond) {
			for _, at := range series.Points {
				times[at] = true
			}
		}
	}
	last, worst := 0.0, 0.0
	for _, at := range sorted(times) {
		if last > 0 {
			worst = max(worst, at-last)
		}
		last = at
	}
	t.Logf("%d samples, largest distance %.3f s at an interval of 0.2 s", len(times), worst)
	if worst > 0.4+0.05 {
		t.Errorf("largest distance between samples is %.3f s, want at most 2 intervals of 0.2 s", worst)
	}
	// It stays there, also over a restart, and can go back.
	st.h.stop()
	st.h = run(t, st.h.cfg)
	st.h.cycles(t, 3)
	st.onlyOn(t, st.h, "shard-1")
	if err := st.h.Move(t.Context(), st.target.ID, "shard-0"); err != nil {
		t.Fatal(err)
	}
	st.onlyOn(t, st.h, "shard-0")
}

func TestMoveErrorsAreNamed(t *testing.T) {
	st := newStage(t)
	if err := st.h.Move(t.Context(), "0000000000000009", "shard-1"); !errors.Is(err, sharder.ErrUnknownTarget) {
		t.Errorf("unknown target: %v", err)
	}
	if err := st.h.Move(t.Context(), st.target.ID, "shard-7"); !errors.Is(err, sharder.ErrUnknownShard) {
		t.Errorf("unknown shard: %v", err)
	}
	if err := st.h.Move(t.Context(), st.target.ID, "shard-0"); !errors.Is(err, sharder.ErrAlreadyThere) {
		t.Errorf("a move to where it is: %v", err)
	}
	st.gate.Fail(st.target.ID, http.StatusBadGateway)
	if err := st.h.Move(t.Context(), st.target.ID, "shard-1"); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("a target that the destination cannot scrape: %v", err)
	}
	st.gate.Fail(st.target.ID, 0)
	st.shards[1].Stop()
	shardtest.Eventually(t, 5*time.Second, "shard-1 is shown as down", func() error {
		if st.h.Snapshot().Shards[1].Up {
			return errors.New("up")
		}
		return nil
	})
	if err := st.h.Move(t.Context(), st.target.ID, "shard-1"); !errors.Is(err, sharder.ErrShardDown) {
		t.Errorf("a shard that is down: %v", err)
	}
	st.shards = st.shards[:1]
	st.onlyOn(t, st.h, "shard-0")
}

// steps are the requests of a hand-over, each failed in both ways.
func steps(st *stage) map[string]func(lose bool, struck func()) {
	source, destination := st.shards[0].URL, st.shards[1].URL
	return map[string]func(bool, func()){
		"probe": func(lose bool, f func()) { st.net.arm(http.MethodPost, destination, lose, f) },
		"stop":  func(lose bool, f func()) { st.net.arm(http.MethodPut, source, lose, f) },
		"start": func(lose bool, f func()) { st.net.arm(http.MethodPut, destination, lose, f) },
	}
}

func TestFailedMoveRollsBack(t *testing.T) {
	for _, step := range []string{"probe", "stop", "start"} {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s lost answer %v", step, lose), func(t *testing.T) {
				st := newStage(t)
				steps(st)[step](lose, nil)
				err := st.h.Move(t.Context(), st.target.ID, "shard-1")
				if !errors.Is(err, errFault) {
					t.Fatalf("move: %v", err)
				}
				// The answer comes when the roll-back is done: no cycle is needed.
				if on := scrapers(t, st.shards, st.target.ID); len(on) != 1 || on[0] != "shard-0" {
					t.Errorf("right after the failure scraped by %v", on)
				}
				st.onlyOn(t, st.h, "shard-0")
				st.noMarkers(t, "shard-0")
				if err := st.h.Move(t.Context(), st.target.ID, "shard-1"); err != nil {
					t.Errorf("the next try: %v", err)
				}
				st.onlyOn(t, st.h, "shard-1")
			})
		}
	}
}

func TestCrashInAMoveEndsWithOneScraper(t *testing.T) {
	for _, step := range []string{"probe", "stop", "start"} {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("at %s, request delivered %v", step, lose), func(t *testing.T) {
				st := newStage(t)
				next := st.h.cfg
				next.DataDir = t.TempDir()
				next.Transport = &st.net.Transport
				// The crash: from here on the old sharder reaches nobody, and the
				// new one finds the disk as it was at this moment.
				steps(st)[step](lose, func() {
					st.net.mu.Lock()
					st.net.dead = true
					st.net.mu.Unlock()
					copyState(t, st.h.cfg.DataDir, next.DataDir)
				})
				if err := st.h.Move(t.Context(), st.target.ID, "shard-1"); err == nil {
					t.Fatal("the move succeeded")
				}
				st.h.stop()
				h := run(t, next)
				shardtest.Eventually(t, 10*time.Second, "two cycles", func() error {
					if h.Snapshot().Cycle.Number < 2 {
						return errors.New("not yet")
					}
					return nil
				})
				if on := scrapers(t, st.shards, st.target.ID); len(on) != 1 {
					t.Errorf("after two cycles scraped by %v", on)
				}
				want := "shard-0"
				if step == "start" && lose {
					want = "shard-1" // the switch was complete but for its record
				}
				st.onlyOn(t, h, want)
				st.noMarkers(t, want)
			})
		}
	}
}

func copyState(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, "sharder", "state.json"))
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(to, "sharder"), 0o750),
			os.WriteFile(filepath.Join(to, "sharder", "state.json"), data, 0o600))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestOverloadedShardIsRelieved(t *testing.T) {
	g := shardtest.NewGateway(t)
	shards := twoShards(t)
	var targets []target.Target
	for i := range 8 {
		targets = append(targets, g.Target("alpha", "node", i+1, 95))
	}
	c := newCollector("alpha", []target.Pool{shardtest.Pool("alpha", "node", "200ms")}, targets...)
	cfg := config(t, shards, c)
	cfg.Options.MoveBudget = 1
	h := run(t, cfg)
	h.allUp(t, 8)
	if sh := h.Snapshot().Shards[0]; sh.Targets != 8 {
		t.Fatalf("they do not begin on one shard: %+v", sh)
	}
	for _, x := range targets {
		g.Resize(x.ID, 145) // 8 x 150 = 1200 of 1000
	}
	shardtest.Eventually(t, 10*time.Second, "shard-0 is relieved", func() error {
		s := h.Snapshot()
		if s.Shards[0].Weight > 930 || s.Shards[1].Targets == 0 || s.Moving > 0 {
			return fmt.Errorf("%+v", s.Shards)
		}
		return nil
	})
	h.cycles(t, 5)
	if s := h.Snapshot(); s.Shards[0].Targets != 6 || s.Shards[1].Targets != 2 || s.Shards[0].Overfull {
		t.Errorf("after relief: %+v", s.Shards)
	}
	h.allUp(t, 8)
	for _, x := range targets {
		if on := scrapers(t, shards, x.ID); len(on) != 1 {
			t.Errorf("%s is scraped by %v", x.ID, on)
		}
	}
}

func sorted(set map[float64]bool) []float64 { return slices.Sorted(maps.Keys(set)) }
