package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder"
)

func (u *up) newSharder() (*sharder.Sharder, error) {
	client := &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Minute}}
	var sources []sharder.Source
	for _, c := range u.fleet.Clusters() {
		if _, err := c.RESTConfig(); err != nil {
			// Known, but not read: what it had stays where it is.
			sources = append(sources, sharder.Source{Cluster: c.ID, List: func(context.Context) (target.List, error) { return target.List{}, err }})
			continue
		}
		sources = append(sources, sharder.HTTPSource(c.ID, u.collectors[c.ID]+"/clusters/"+c.ID+"/targets", client))
	}
	var shards []sharder.ShardAddress
	for i := range u.cfg.shards {
		shards = append(shards, sharder.ShardAddress{Name: shardName(i), URL: u.cfg.url(u.cfg.shardPort(i))})
	}
	s, err := sharder.New(sharder.Config{
		DataDir:    u.cfg.dataDir,
		Shards:     shards,
		Sources:    func() []sharder.Source { return sources },
		Options:    sharder.Options{Capacity: u.cfg.shardCapacity},
		Interval:   u.cfg.cycle,
		Logger:     u.log,
		Registerer: u.reg,
	})
	if err != nil {
		return nil, fmt.Errorf("start the sharder: %w", err)
	}
	return s, nil
}

// targetCount is how many targets of a cluster are up, of how many.
type targetCount struct{ up, expected int }

func countTargets(s *sharder.Snapshot) map[string]targetCount {
	counts := map[string]targetCount{}
	for _, t := range s.Targets {
		c := counts[t.Cluster]
		c.expected++
		if t.Health == target.HealthUp {
			c.up++
		}
		counts[t.Cluster] = c
	}
	return counts
}

// awaitTruth waits until all that the screen shows is true: every cluster that
// answers has its targets discovered, placed and scraped once, every shard is
// up, Thanos Query sees the same targets up, and an inspection has ended. A
// fleet that cannot get there within two minutes is shown as it is; then /readyz
// turns 200 later.
func (u *up) awaitTruth(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := u.progress.await(patience, "fleetwatch", time.Second, u.truth)
	if err == nil {
		u.api.ready.Store(true)
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	u.progress.line("going on without; the screen says what is missing")
	u.stack.start(func(ctx context.Context) error {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		for {
			if done, _ := u.truth(ctx); done {
				u.api.ready.Store(true)
				<-ctx.Done()
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	})
	return nil
}

func (u *up) truth(ctx context.Context) (bool, string) {
	snapshot := u.sharder.Snapshot()
	states := map[string]fleet.State{}
	for _, c := range u.fleet.Clusters() {
		states[c.ID] = u.fleet.Status(c.ID).State
	}
	missing := untrue(snapshot, states)
	if len(missing) == 0 {
		seen, err := u.query.targetsUp(ctx)
		if err != nil {
			missing = append(missing, "Thanos Query ("+err.Error()+")")
		}
		counts := countTargets(snapshot)
		for _, cluster := range slices.Sorted(maps.Keys(counts)) {
			if err == nil && seen[cluster] < counts[cluster].up {
				missing = append(missing, fmt.Sprintf("Thanos Query to see %d targets of %s up (%d so far)", counts[cluster].up, cluster, seen[cluster]))
			}
		}
	}
	if len(missing) == 0 && u.inspector.last().verdict == "" {
		missing = append(missing, "the first inspection")
	}
	return len(missing) == 0, strings.Join(missing, ", ")
}

// untrue lists what the sharder still has to do for the clusters that answer.
func untrue(s *sharder.Snapshot, states map[string]fleet.State) []string {
	if s.Cycle.Number == 0 {
		return []string{"the first round of the sharder"}
	}
	var missing []string
	for _, shard := range s.Shards {
		if !shard.Up {
			missing = append(missing, shard.Name)
		}
	}
	synced := map[string]bool{}
	for _, c := range s.Clusters {
		synced[c.Cluster] = c.Synced
	}
	for _, cluster := range slices.Sorted(maps.Keys(states)) {
		if states[cluster] == fleet.StateReady && !synced[cluster] {
			missing = append(missing, "the targets of "+cluster)
		}
	}
	if s.Unassigned > 0 {
		missing = append(missing, fmt.Sprintf("a place for %d targets", s.Unassigned))
	}
	if s.Unknown > 0 {
		missing = append(missing, fmt.Sprintf("the first scrape of %d targets", s.Unknown))
	}
	return missing
}
