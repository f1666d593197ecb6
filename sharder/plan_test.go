package sharder_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/sharder"
)

var update = flag.Bool("update", false, "rewrite the wanted decisions in testdata")

// planCase is one file in testdata/plan.
type planCase struct {
	About   string              `json:"about"`
	Now     time.Time           `json:"now"`
	Options sharder.Options     `json:"options"`
	Shards  []sharder.ShardLoad `json:"shards"`
	Items   []sharder.Item      `json:"items"`
	Want    sharder.Decisions   `json:"want"`
}

func TestPlanFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c planCase
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&c); err != nil {
				t.Fatal(err)
			}
			got := sharder.Plan(c.Now, c.Shards, c.Items, c.Options)
			if *update {
				c.Want = got
				out, err := json.MarshalIndent(c, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, append(out, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.Want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.About, diff)
			}
		})
	}
}

// fleet makes a random but reproducible input.
func fleet(seed uint64) (time.Time, []sharder.ShardLoad, []sharder.Item, sharder.Options) {
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible on purpose
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	opts := sharder.Options{Capacity: 1 + rng.Int64N(20_000), MaxMoves: 1 + rng.IntN(30), MoveBudget: 0.05 + rng.Float64()}
	shards := make([]sharder.ShardLoad, rng.IntN(8))
	for i := range shards {
		shards[i] = sharder.ShardLoad{Name: fmt.Sprintf("shard-%d", i), Up: rng.IntN(5) > 0, HeadSeries: rng.Int64N(25_000)}
	}
	items := make([]sharder.Item, rng.IntN(150))
	for i := range items {
		items[i] = sharder.Item{ID: fmt.Sprintf("%016x", i), Weight: rng.Int64N(2_000), Scraped: rng.IntN(2) == 0}
		switch n := rng.IntN(10); {
		case n < 6 && len(shards) > 0:
			items[i].Shard = shards[rng.IntN(len(shards))].Name
		case n == 6:
			items[i].Shard = "shard-removed"
		}
		if rng.IntN(4) == 0 {
			items[i].HoldUntil = now.Add(time.Duration(rng.IntN(120)-60) * time.Minute)
		}
	}
	return now, shards, items, opts
}

// checkPlan states what every plan must keep.
func checkPlan(tb testing.TB, now time.Time, shards []sharder.ShardLoad, items []sharder.Item, opts sharder.Options) {
	tb.Helper()
	got := sharder.Plan(now, shards, items, opts)
	up, byName := map[string]bool{}, map[string]bool{}
	for _, s := range shards {
		byName[s.Name] = true
		up[s.Name] = s.Up
	}
	byID, at := map[string]sharder.Item{}, map[string]string{}
	live := map[string]int64{}
	for _, it := range items {
		byID[it.ID] = it
		if byName[it.Shard] {
			at[it.ID] = it.Shard
			live[it.Shard] += it.Weight
		}
	}
	anyUp := slices.ContainsFunc(shards, func(s sharder.ShardLoad) bool { return s.Up })
	for _, p := range got.Placements {
		if at[p.ID] != "" || !up[p.Shard] || p.Reason == "" {
			tb.Errorf("placement %+v of a target at %q on a shard with up=%v", p, at[p.ID], up[p.Shard])
		}
		at[p.ID] = p.Shard
		live[p.Shard] += byID[p.ID].Weight
	}
	moved := map[string]bool{}
	var series int64
	for _, m := range got.Moves {
		it := byID[m.ID]
		if it.Shard != m.From || m.From == m.To || !up[m.From] || !up[m.To] || moved[m.ID] || it.HoldUntil.After(now) {
			tb.Errorf("move %+v of %+v", m, it)
		}
		if live[m.From] <= opts.Capacity {
			tb.Errorf("move %+v off a shard that is not overloaded: %d of %d", m, live[m.From], opts.Capacity)
		}
		moved[m.ID] = true
		series += it.Weight
	}
	for _, m := range got.Moves {
		live[m.From] -= byID[m.ID].Weight
		live[m.To] += byID[m.ID].Weight
		at[m.ID] = m.To
	}
	for _, m := range got.Moves {
		if live[m.To] > opts.Capacity {
			tb.Errorf("move %+v overloads its destination: %d of %d", m, live[m.To], opts.Capacity)
		}
	}
	if len(got.Moves) > opts.MaxMoves || float64(series) > opts.MoveBudget*float64(opts.Capacity) {
		tb.Errorf("%d moves of %d series: over the budget %+v", len(got.Moves), series, opts)
	}
	for id := range byID {
		if (at[id] == "") != slices.Contains(got.Unplaced, id) {
			tb.Errorf("target %s is at %q, unplaced: %v", id, at[id], got.Unplaced)
		}
	}
	if anyUp && len(got.Unplaced) > 0 {
		tb.Errorf("%d targets lost while a shard is up", len(got.Unplaced))
	}
	// The same in another order gives the same.
	shuffled, others := slices.Clone(items), slices.Clone(shards)
	rng := rand.New(rand.NewPCG(uint64(len(items)), 3)) //nolint:gosec // reproducible on purpose
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	slices.Reverse(others)
	if diff := cmp.Diff(got, sharder.Plan(now, others, shuffled, opts)); diff != "" {
		tb.Errorf("order of the input matters:\n%s", diff)
	}
	// Done once, there is nothing more to place.
	after := slices.Clone(items)
	for i := range after {
		after[i].Shard = at[after[i].ID]
	}
	if again := sharder.Plan(now, shards, after, opts); len(again.Placements) > 0 {
		tb.Errorf("placements again: %+v", again.Placements)
	}
}

func TestPlanProperties(t *testing.T) {
	for seed := range uint64(2000) {
		now, shards, items, opts := fleet(seed)
		checkPlan(t, now, shards, items, opts)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		now, shards, items, opts := fleet(seed)
		checkPlan(t, now, shards, items, opts)
	})
}

// TestPlanSettles runs plans until nothing moves any more: relief must not
// play ping-pong.
func TestPlanSettles(t *testing.T) {
	for seed := range uint64(300) {
		now, shards, items, opts := fleet(seed)
		for i := range shards {
			shards[i].HeadSeries = 0
		}
		for round := 0; ; round++ {
			d := sharder.Plan(now, shards, items, opts)
			if len(d.Moves) == 0 && len(d.Placements) == 0 {
				break
			}
			if round > len(items)+2 {
				t.Fatalf("seed %d: still at work after %d rounds: %+v", seed, round, d)
			}
			to := map[string]string{}
			for _, p := range d.Placements {
				to[p.ID] = p.Shard
			}
			for _, m := range d.Moves {
				to[m.ID] = m.To
			}
			for i := range items {
				if s, ok := to[items[i].ID]; ok {
					items[i].Shard = s
				}
			}
		}
	}
}

func BenchmarkPlan20000Targets(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // reproducible on purpose
	shards := make([]sharder.ShardLoad, 40)
	for i := range shards {
		shards[i] = sharder.ShardLoad{Name: fmt.Sprintf("shard-%02d", i), Up: true}
	}
	for _, placed := range []bool{false, true} {
		items := make([]sharder.Item, 20_000)
		for i := range items {
			items[i] = sharder.Item{ID: fmt.Sprintf("%016x", i), Weight: int64(200 * (1 + rng.ExpFloat64()*10))}
			if placed {
				items[i].Shard = shards[i%len(shards)].Name
			}
		}
		name := "cold"
		if placed {
			name = "steady"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sharder.Plan(time.Time{}, shards, items, sharder.Options{})
			}
		})
	}
}
