package shard

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
)

const (
	// reloadInterval is how long the scrape manager may sit on a new target
	// set. Prometheus' own 5 s are for noisy discovery; assignments are not.
	reloadInterval = 10 * time.Millisecond
	// pollInterval is how often a change in flight is looked at.
	pollInterval = 5 * time.Millisecond
)

// scraper drives a scrape.Manager from target sets to a known state: when
// apply returns nil, exactly the wanted targets have loops, and no scrape of
// a target that left is in flight. One goroutine at a time may use it.
type scraper struct {
	manager *scrape.Manager
	sets    chan map[string][]*targetgroup.Group
	base    config.Config
	log     *slog.Logger
	now     func() time.Time

	applied map[string]*config.ScrapeConfig // what the manager was last given
	retired map[string]time.Time            // emptied pools and when they may go
}

// newScraper makes a scraper that appends to db. The manager spreads scrapes
// over the interval by a hash of the host and its external labels; it is given
// the replica only, so that a target keeps its phase when it moves between
// the shards of one host, and replicas scrape at different moments.
func newScraper(replica string, db storage.AppendableV2, reg prometheus.Registerer, log *slog.Logger) (*scraper, error) {
	base, err := config.Load("", log)
	if err != nil {
		return nil, fmt.Errorf("load the default scrape configuration: %w", err)
	}
	base.GlobalConfig.ExternalLabels = labels.FromStrings("replica", replica)
	manager, err := scrape.NewManager(&scrape.Options{
		DiscoveryReloadInterval:  model.Duration(reloadInterval),
		DiscoveryReloadOnStartup: true,
	}, log, nil, nil, db, reg)
	if err != nil {
		return nil, fmt.Errorf("create the scrape manager: %w", err)
	}
	return &scraper{
		manager: manager,
		sets:    make(chan map[string][]*targetgroup.Group),
		base:    *base,
		log:     log,
		now:     time.Now,
		applied: map[string]*config.ScrapeConfig{},
		retired: map[string]time.Time{},
	}, nil
}

// run is the manager's loop; it returns after stop.
func (s *scraper) run() error { return s.manager.Run(s.sets) }

// stop waits for the scrapes in flight. It writes no stale markers.
func (s *scraper) stop() { s.manager.Stop() }

// active gives every running target by its ID.
func (s *scraper) active() map[string]*scrape.Target {
	out := map[string]*scrape.Target{}
	for _, pool := range s.manager.TargetsActive() {
		for _, t := range pool {
			out[t.GetValue(idLabel)] = t
		}
	}
	return out
}

// apply brings the manager to w. Targets in silent stop without end-of-run
// stale markers. On an error nothing is undone; calling it again goes on.
func (s *scraper) apply(ctx context.Context, w *wanted, silent map[string]bool) error {
	s.retire(w)
	configs := maps.Clone(w.configs)
	groups := maps.Clone(w.groups)
	for name := range s.retired {
		configs[name] = s.applied[name]
		groups[name] = []*targetgroup.Group{{Source: name}}
	}
	s.mute(w, silent)
	if !sameConfigs(s.applied, configs) {
		// Targets that leave do so under the old configuration: a changed one
		// restarts every loop of its pool, without what mute has set.
		if err := s.converge(ctx, s.withoutLeavers(w), w, false); err != nil {
			return err
		}
		next := s.base
		next.ScrapeConfigs = make([]*config.ScrapeConfig, 0, len(configs))
		for _, cfg := range configs {
			next.ScrapeConfigs = append(next.ScrapeConfigs, cfg)
		}
		if err := s.manager.ApplyConfig(&next); err != nil {
			return fmt.Errorf("apply the scrape configuration: %w", err)
		}
		s.applied = configs
	}
	return s.converge(ctx, groups, w, true)
}

// retire keeps a pool that is not wanted any more until its loops have had
// time for their stale markers: removing it at once would cut them off.
func (s *scraper) retire(w *wanted) {
	for name, cfg := range s.applied {
		if _, ok := s.retired[name]; !ok && w.configs[name] == nil {
			s.retired[name] = s.now().Add(3*time.Duration(cfg.ScrapeInterval) + time.Duration(cfg.ScrapeTimeout))
		}
	}
	for name, at := range s.retired {
		if w.configs[name] != nil || s.now().After(at) {
			delete(s.retired, name)
		}
	}
}

// mute switches off the stale markers of targets that go on elsewhere, and of
// those that go on here under another address.
func (s *scraper) mute(w *wanted, silent map[string]bool) {
	for pool, targets := range s.manager.TargetsActive() {
		var mute []*scrape.Target
		for _, t := range targets {
			id := t.GetValue(idLabel)
			key, stays := w.keys[pool][id]
			if (!stays && silent[id]) || (stays && key != keyOf(t)) {
				mute = append(mute, t)
			}
		}
		s.manager.DisableEndOfRunStalenessMarkers(pool, mute)
	}
}

// withoutLeavers is the running set less the targets that w lacks.
func (s *scraper) withoutLeavers(w *wanted) map[string][]*targetgroup.Group {
	out := map[string][]*targetgroup.Group{}
	for pool, targets := range s.manager.TargetsActive() {
		running := make(map[string]string, len(targets))
		for _, t := range targets {
			running[t.GetValue(idLabel)] = keyOf(t)
		}
		group := &targetgroup.Group{Source: pool}
		for _, all := range w.groups[pool] {
			for _, set := range all.Targets {
				id := string(set[idLabel])
				if key, ok := running[id]; ok && key == w.keys[pool][id] {
					group.Targets = append(group.Targets, set)
				}
			}
		}
		out[pool] = []*targetgroup.Group{group}
	}
	return out
}

// converge hands the groups to the manager and waits until its loops are
// those, and the loops that it stopped have ended.
func (s *scraper) converge(ctx context.Context, groups map[string][]*targetgroup.Group, w *wanted, complete bool) error {
	leaving := map[string][]*scrape.Target{}
	for pool, targets := range s.manager.TargetsActive() {
		for _, t := range targets {
			if key, ok := w.keys[pool][t.GetValue(idLabel)]; !ok || key != keyOf(t) {
				leaving[pool] = append(leaving[pool], t)
			}
		}
	}
	select {
	case s.sets <- groups:
	case <-ctx.Done():
		return fmt.Errorf("hand the target set to the scrape manager: %w", ctx.Err())
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !s.reached(w, complete) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the scrape manager to take the target set: %w", ctx.Err())
		}
	}
	for pool, gone := range leaving {
		// The pool is locked while it waits for the loops that it stopped, and
		// this call takes the same lock: when it returns they have ended. The
		// targets themselves are gone, so it changes nothing.
		s.manager.DisableEndOfRunStalenessMarkers(pool, gone)
	}
	return nil
}

// reached reports whether no unwanted target is active and, when complete,
// every wanted one is.
func (s *scraper) reached(w *wanted, complete bool) bool {
	active := s.manager.TargetsActive()
	for pool, targets := range active {
		for _, t := range targets {
			if key, ok := w.keys[pool][t.GetValue(idLabel)]; !ok || key != keyOf(t) {
				return false
			}
		}
	}
	if !complete {
		return true
	}
	for pool, keys := range w.keys {
		if len(active[pool]) < len(keys) {
			return false
		}
	}
	return true
}

func sameConfigs(a, b map[string]*config.ScrapeConfig) bool {
	return maps.Equal(a, b) // by pointer: translate keeps unchanged values
}
