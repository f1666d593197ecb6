package sharder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// Reasons of errors, as the metric names them.
const (
	reasonList   = "list"
	reasonStatus = "status"
	reasonProbe  = "probe"
	reasonApply  = "apply"
	reasonFenced = "fenced"
	reasonMove   = "move"
	reasonDisk   = "disk"
)

func sortShards(shards []*shardState) {
	slices.SortFunc(shards, func(a, b *shardState) int { return cmp.Compare(a.name, b.name) })
}

// runCycle is one round: read, weigh, plan, keep, apply, move.
func (s *Sharder) runCycle(ctx context.Context) {
	start := time.Now()
	s.told = s.cycle.Errors
	s.cycle = CycleView{Time: start, Number: s.cycle.Number + 1}
	sources := s.cfg.Sources()
	polled := make(chan struct{})
	go func() { defer close(polled); s.poll(ctx) }()
	s.listings = s.lists.refresh(ctx, sources)
	<-polled
	if ctx.Err() != nil {
		return
	}
	s.merge(sources)
	s.meetShards()
	s.settle()
	s.weigh(ctx)
	s.explain(ctx, sources)
	s.place(start)
	if err := s.save(); err != nil {
		// Nobody may act on what could be forgotten.
		s.fail(reasonDisk, err)
	} else {
		s.push(ctx)
		s.relocate(ctx, s.last.Moves)
	}
	s.cycle.Duration = time.Since(start)
	s.metrics.cycleDone(s.cycle)
	s.publish()
}

// fail counts and shows an error. It is a warning once; the same in the next
// cycles is no news.
func (s *Sharder) fail(reason string, err error) {
	s.metrics.errors.WithLabelValues(reason).Inc()
	s.cycle.Errors = append(s.cycle.Errors, err.Error())
	level := slog.LevelWarn
	if slices.Contains(s.told, err.Error()) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "sharder cycle is not complete", "reason", reason, "err", err)
}

// poll reads every shard's status.
func (s *Sharder) poll(ctx context.Context) {
	var all errgroup.Group
	all.SetLimit(64)
	for _, sh := range s.shards {
		all.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, s.cfg.StatusTimeout)
			defer cancel()
			status, err := sh.shardClient.status(ctx)
			sh.status, sh.err = &status, err
			if err != nil {
				sh.status = nil
			}
			return nil
		})
	}
	_ = all.Wait() // errors are kept by shard
}

// merge takes the lists in; see state.merge for what a list may remove.
func (s *Sharder) merge(sources []Source) {
	present := make(map[string]bool, len(sources))
	for _, src := range sources {
		present[src.Cluster] = true
		news := s.listings[src.Cluster]
		if news.err != nil {
			s.fail(reasonList, news.err)
		}
		if !news.good.IsZero() && s.state.merge(news.list) {
			s.changed(changedPlaces)
		}
	}
	if sources != nil && s.state.removeIf(func(e *entry) bool { return !present[e.Target.Cluster] }) {
		s.changed(changedPlaces)
	}
}

// meetShards takes the statuses in: epochs, what is in force, and targets
// that a shard scrapes but nobody has placed.
func (s *Sharder) meetShards() {
	for _, sh := range s.shards {
		if !sh.up() {
			s.fail(reasonStatus, sh.err)
			continue
		}
		sh.seen = time.Now()
		if !sh.contacted && sh.status.Epoch >= s.state.Epoch {
			// Our state is older than what the shard was told, such as after
			// the data folder was lost: start above it.
			s.state.Epoch, s.revision = sh.status.Epoch+1, 0
			for _, other := range s.shards {
				other.acked, other.revision, other.content = false, 0, 0
			}
			s.changed(changedPlaces)
		}
		sh.contacted = true
		if sh.status.Epoch > s.state.Epoch {
			sh.err = fmt.Errorf("shard %s: %w", sh.name, errFenced)
			s.fail(reasonFenced, sh.err)
		}
		if sh.status.Epoch != s.state.Epoch || sh.status.Revision != sh.revision {
			sh.acked = false
		}
		for _, st := range sh.status.Targets {
			sh.maybe[st.ID] = true
			e := s.state.Targets[st.ID]
			if e == nil {
				continue
			}
			if e.Shard == "" {
				e.Shard, e.running, e.Reason = sh.name, sh.name, "was scraped there already"
				s.changed(changedPlaces)
			}
		}
	}
}

// settle ends hand-overs that a crash left open: forward when the destination
// alone scrapes the target, else back to the source.
func (s *Sharder) settle() {
	for _, id := range s.state.ids() {
		e := s.state.Targets[id]
		if e.MoveTo == "" {
			continue
		}
		from, to := s.byName[e.Shard], s.byName[e.MoveTo]
		if scrapes(to, id) && !scrapes(from, id) {
			s.log.Info("hand-over was complete", "target", id, "shard", e.MoveTo)
			e.Shard = e.MoveTo
		} else {
			s.log.Info("hand-over rolled back after a restart", "target", id, "shard", e.Shard)
		}
		e.running, e.MoveTo = e.Shard, ""
		s.changed(changedPlaces)
	}
}

func scrapes(sh *shardState, id string) bool {
	return sh != nil && sh.up() && slices.ContainsFunc(sh.status.Targets, func(t target.TargetStatus) bool { return t.ID == id })
}

// weigh takes measurements in, and probes what nobody has measured yet.
func (s *Sharder) weigh(ctx context.Context) {
	for _, sh := range s.shards {
		if !sh.up() {
			continue
		}
		for _, st := range sh.status.Targets {
			e := s.state.Targets[st.ID]
			if e == nil || e.Shard != sh.name {
				continue
			}
			e.status = &st
			if w := e.Weight.observed(st); w != e.Weight {
				e.Weight = w
				s.changed(changedWeights)
			}
		}
	}
	var unknown []*entry
	for _, id := range s.state.ids() {
		if e := s.state.Targets[id]; !e.Weight.known() {
			unknown = append(unknown, e)
		}
	}
	up := s.upShards()
	if len(unknown) == 0 || len(up) == 0 || s.mustWait() {
		return
	}
	s.probe(ctx, slices.DeleteFunc(slices.Clone(unknown), func(e *entry) bool { return e.Shard != "" }), up)
	estimate := newEstimates(s.samples())
	for _, e := range unknown {
		if !e.Weight.known() {
			e.Weight = estimate.of(e.Target.Job)
		}
	}
}

// probe weighs targets by one trial scrape each, spread over the shards that
// are up. One that gives no answer in time stays unknown.
func (s *Sharder) probe(ctx context.Context, unknown []*entry, up []*shardState) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ProbeTimeout)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(s.cfg.ProbeConcurrency)
	failures := make([]error, len(unknown))
	for i, e := range unknown {
		via, req := up[i%len(up)], target.ProbeRequest{Pool: s.state.Pools[e.Target.Pool], Target: e.Target}
		all.Go(func() error {
			result, err := via.probe(ctx, req)
			if err != nil {
				failures[i] = err
				return nil
			}
			e.Weight = weight{Series: result.Series + reportSeries, From: weightFromProbe}
			return nil
		})
	}
	_ = all.Wait() // errors are kept by target
	for _, err := range failures {
		if err != nil {
			// A target that is down is no failure of the cycle: its shard will
			// say up 0.
			s.metrics.errors.WithLabelValues(reasonProbe).Inc()
			s.log.Debug("target not weighed by a probe", "err", err)
		}
	}
}

func (s *Sharder) samples() []sample {
	out := make([]sample, 0, len(s.state.Targets))
	for _, e := range s.state.Targets {
		if e.Weight.known() && e.Weight.From != weightFromEstimate {
			out = append(out, sample{job: e.Target.Job, series: e.Weight.Series})
		}
	}
	return out
}

func (s *Sharder) upShards() []*shardState {
	return slices.DeleteFunc(slices.Clone(s.shards), func(sh *shardState) bool { return !sh.up() })
}

// mustWait holds placement back while a shard that has not answered yet may
// be scraping targets that a sharder without state knows nothing of.
func (s *Sharder) mustWait() bool {
	if !s.fresh {
		return false
	}
	heard := !slices.ContainsFunc(s.shards, func(sh *shardState) bool { return !sh.contacted })
	if heard || time.Since(s.started) >= s.cfg.AdoptionWait {
		s.fresh = false
	}
	return s.fresh
}

// place plans, and takes the placements in. Moves are left for relocate.
func (s *Sharder) place(now time.Time) {
	s.last = Decisions{}
	if s.mustWait() {
		return
	}
	loads := make([]ShardLoad, 0, len(s.shards))
	for _, sh := range s.shards {
		l := ShardLoad{Name: sh.name, Up: sh.up() && !errors.Is(sh.err, errFenced)}
		if sh.up() {
			l.HeadSeries = sh.status.HeadSeries
		}
		loads = append(loads, l)
	}
	items := make([]Item, 0, len(s.state.Targets))
	for id, e := range s.state.Targets {
		if !e.Weight.known() && e.Shard == "" {
			continue // no shard is up: nowhere to weigh or to place it
		}
		items = append(items, Item{
			ID: id, Weight: e.Weight.Series, Shard: e.Shard, HoldUntil: e.HoldUntil,
			Scraped: e.status != nil && e.status.Series >= 0,
		})
	}
	s.last = Plan(now, loads, items, s.cfg.Options)
	for _, p := range s.last.Placements {
		e := s.state.Targets[p.ID]
		e.Shard, e.running, e.Reason, e.status = p.Shard, p.Shard, p.Reason, nil
		s.changed(changedPlaces)
		s.log.Debug("target placed", "target", p.ID, "shard", p.Shard, "weight", e.Weight.Series, "weight_from", e.Weight.From, "reason", p.Reason)
	}
	if n := len(s.last.Placements); n > 0 {
		s.log.Info("targets placed", "count", n, "overfull", s.last.Overfull)
	}
}

// push brings every shard that answers to its assignment.
func (s *Sharder) push(ctx context.Context) {
	var all errgroup.Group
	all.SetLimit(64)
	var sent []*shardState
	for _, sh := range s.shards {
		if !sh.up() || errors.Is(sh.err, errFenced) {
			continue
		}
		if a, needed := s.next(sh); needed {
			sent = append(sent, sh)
			all.Go(func() error { s.send(ctx, sh, a); return nil })
		}
	}
	_ = all.Wait() // errors are kept by shard
	for _, sh := range sent {
		if !sh.acked {
			s.fail(applyReason(sh.err), sh.err)
		}
	}
}

func applyReason(err error) string {
	if errors.Is(err, errFenced) {
		return reasonFenced
	}
	return reasonApply
}

// next gives the shard's assignment and whether it must be sent.
func (s *Sharder) next(sh *shardState) (target.Assignment, bool) {
	a := s.state.assignment(sh.name, sh.maybe)
	if content := fingerprint(a); content != sh.content || sh.revision == 0 {
		s.revision++
		sh.content, sh.revision, sh.acked = content, s.revision, false
	}
	a.Revision = sh.revision
	for _, t := range a.Targets {
		sh.maybe[t.ID] = true
	}
	return a, !sh.acked
}

// send applies an assignment. It touches sh only.
func (s *Sharder) send(ctx context.Context, sh *shardState, a target.Assignment) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ApplyTimeout)
	defer cancel()
	if _, err := sh.apply(ctx, a); err != nil {
		sh.err = err
		return
	}
	sh.acked, sh.err = true, nil
	clear(sh.maybe)
	for _, t := range a.Targets {
		sh.maybe[t.ID] = true
	}
}
