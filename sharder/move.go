package sharder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// What a caller of Move may branch on.
var (
	ErrUnknownTarget = errors.New("no such target")
	ErrUnknownShard  = errors.New("no such shard")
	ErrShardDown     = errors.New("shard does not answer")
	// ErrAlreadyThere: nothing moved; the target is kept there as after a move.
	ErrAlreadyThere = errors.New("it is there already, and is kept there")
	// ErrNotScrapedYet: the target has moved, but its first scrape was not seen.
	ErrNotScrapedYet = errors.New("moved, but not scraped there yet; see the target list")
)

// sampleEvery is how often Move looks for the first scrape.
const sampleEvery = 100 * time.Millisecond

// moveRequest is one call of Move; done gets exactly one answer.
type moveRequest struct {
	id, to string
	done   chan error // capacity 1

	// patience is how long the first scrape may take; set before done.
	patience time.Duration
}

// Move hands a target over to a shard and keeps it there for Config.PinFor.
// It returns once the destination has scraped it, or with ErrNotScrapedYet
// after one interval and timeout of its pool; on any other error the target is
// still where it was. It waits for a cycle under way.
func (s *Sharder) Move(ctx context.Context, id, shard string) error {
	req := &moveRequest{id: id, to: shard, done: make(chan error, 1)}
	select {
	case s.requests <- req:
	case <-ctx.Done():
		return fmt.Errorf("move target %s to %s: %w", id, shard, ctx.Err())
	}
	select {
	case err := <-req.done:
		if err != nil {
			return err
		}
		return s.awaitScrape(ctx, req)
	case <-ctx.Done():
		return fmt.Errorf("move target %s to %s (it goes on): %w", id, shard, ctx.Err())
	}
}

// awaitScrape returns once the destination has scraped the target. It runs in
// the goroutine of Move's caller and touches nothing that is Run's.
func (s *Sharder) awaitScrape(ctx context.Context, req *moveRequest) error {
	ctx, cancel := context.WithTimeout(ctx, req.patience)
	defer cancel()
	to := s.byName[req.to].shardClient
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		status, err := to.status(ctx)
		if err == nil && slices.ContainsFunc(status.Targets, func(t target.TargetStatus) bool {
			return t.ID == req.id && !t.LastScrape.IsZero()
		}) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("move target %s to %s: %w", req.id, req.to, ErrNotScrapedYet), err)
		}
	}
}

// firstScrape is how long the first scrape of a target of pool may take.
func firstScrape(pool target.Pool) time.Duration {
	cfg := struct {
		Interval model.Duration `yaml:"scrape_interval"`
		Timeout  model.Duration `yaml:"scrape_timeout"`
	}{Interval: model.Duration(time.Minute), Timeout: model.Duration(10 * time.Second)}
	_ = yaml.Unmarshal([]byte(pool.Config), &cfg) // the defaults do for a pool that cannot be read
	return time.Duration(cfg.Interval) + time.Duration(cfg.Timeout) + time.Second
}

func (s *Sharder) serveMove(ctx context.Context, req *moveRequest) error {
	e, to := s.state.Targets[req.id], s.byName[req.to]
	switch {
	case e == nil:
		return fmt.Errorf("move target %s: %w; see the target list for the IDs", req.id, ErrUnknownTarget)
	case to == nil:
		return fmt.Errorf("move target %s to %s: %w; see the shard list for the names", req.id, req.to, ErrUnknownShard)
	case e.Shard == "":
		return fmt.Errorf("move target %s: it is on no shard yet; it will be placed first", req.id)
	}
	hold := time.Now().Add(s.cfg.PinFor)
	if e.Shard == req.to {
		e.HoldUntil = hold
		s.changed(changedPlaces)
		if err := s.save(); err != nil {
			return err
		}
		s.publish()
		return fmt.Errorf("move target %s to %s: %w", req.id, req.to, ErrAlreadyThere)
	}
	req.patience = firstScrape(s.state.Pools[e.Target.Pool])
	h := &handOver{id: req.id, from: e.Shard, to: req.to, hold: hold, reason: "moved by a user"}
	s.handOver(ctx, []*handOver{h})
	s.publish()
	return h.err
}

// relocate does the moves of a plan.
func (s *Sharder) relocate(ctx context.Context, moves []Relocation) {
	if len(moves) == 0 {
		return
	}
	all := make([]*handOver, 0, len(moves))
	for _, m := range moves {
		all = append(all, &handOver{id: m.ID, from: m.From, to: m.To, hold: time.Now().Add(s.cfg.Cooldown), reason: m.Reason})
	}
	s.handOver(ctx, all)
	for _, h := range all {
		if h.err == nil {
			continue
		}
		s.fail(reasonMove, h.err)
		if e := s.state.Targets[h.id]; e != nil && e.HoldUntil.Before(time.Now()) {
			// Others get their turn before this one is tried again.
			e.HoldUntil = time.Now().Add(10 * s.cfg.Interval)
			s.changed(changedWeights)
		}
	}
}

// handOver is one target's move and what became of it.
type handOver struct {
	id, from, to string
	hold         time.Time
	reason       string
	err          error
}

// handOver moves targets with no gap and no overlap: the destination tries
// each target; the intents are kept; the source stops without stale markers
// and with no scrape in flight; the destination starts at once. What fails is
// rolled back to the source. It is finished even if ctx ends meanwhile.
func (s *Sharder) handOver(ctx context.Context, all []*handOver) {
	ctx = context.WithoutCancel(ctx) // every request has a deadline of its own
	s.tryAtDestination(ctx, all)
	ready := slices.DeleteFunc(slices.Clone(all), func(h *handOver) bool { return h.err != nil })
	if len(ready) > 0 {
		for _, h := range ready {
			s.state.Targets[h.id].MoveTo = h.to
		}
		s.changed(changedPlaces)
		if err := s.save(); err != nil {
			for _, h := range ready {
				s.state.Targets[h.id].MoveTo = ""
				h.err = fmt.Errorf("move target %s: %w", h.id, err)
			}
		} else {
			s.publish() // shows them in flight
			for _, pair := range byPair(ready) {
				s.switchOver(ctx, pair)
			}
			if err := s.save(); err != nil {
				s.fail(reasonDisk, err) // a crash now is settled from what the shards say
			}
		}
	}
	for _, h := range all {
		if h.err != nil {
			s.metrics.moves.WithLabelValues("failed").Inc()
			s.log.Warn("target not moved", "target", h.id, "shard", h.from, "to", h.to, "err", h.err)
			continue
		}
		s.metrics.moves.WithLabelValues("moved").Inc()
		s.log.Info("target moved", "target", h.id, "shard", h.to, "from", h.from, "reason", h.reason)
	}
}

// tryAtDestination makes sure that each move is possible, and probes.
func (s *Sharder) tryAtDestination(ctx context.Context, all []*handOver) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ProbeTimeout)
	defer cancel()
	var probes errgroup.Group
	probes.SetLimit(s.cfg.ProbeConcurrency)
	for _, h := range all {
		from, to := s.byName[h.from], s.byName[h.to]
		for _, sh := range []*shardState{from, to} {
			switch {
			case sh == nil:
				h.err = fmt.Errorf("move target %s: %w", h.id, ErrUnknownShard)
			case !sh.up():
				h.err = fmt.Errorf("move target %s: %s: %w", h.id, sh.name, ErrShardDown)
			case errors.Is(sh.err, errFenced):
				h.err = fmt.Errorf("move target %s: %s: %w", h.id, sh.name, errFenced)
			}
		}
		if h.err != nil {
			continue
		}
		t := s.state.Targets[h.id].Target
		req := target.ProbeRequest{Pool: s.state.Pools[t.Pool], Target: t}
		probes.Go(func() error {
			_, h.err = to.probe(ctx, req)
			return nil
		})
	}
	_ = probes.Wait() // errors are kept by move
}

// byPair groups moves by source and destination, in order.
func byPair(all []*handOver) [][]*handOver {
	slices.SortFunc(all, func(a, b *handOver) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.id, b.id))
	})
	var out [][]*handOver
	for i, h := range all {
		if i > 0 && h.from == all[i-1].from && h.to == all[i-1].to {
			out[len(out)-1] = append(out[len(out)-1], h)
		} else {
			out = append(out, []*handOver{h})
		}
	}
	return out
}

// switchOver stops the pair's targets at the source and starts them at the
// destination. The intents are on disk.
func (s *Sharder) switchOver(ctx context.Context, pair []*handOver) {
	from, to := s.byName[pair[0].from], s.byName[pair[0].to]
	s.setRunning(pair, "")
	if err := s.bring(ctx, from); err != nil {
		s.rollBack(ctx, pair, from, nil, err)
		return
	}
	s.setRunning(pair, to.name)
	if err := s.bring(ctx, to); err != nil {
		s.rollBack(ctx, pair, from, to, err)
		return
	}
	for _, h := range pair {
		e := s.state.Targets[h.id]
		e.Shard, e.MoveTo, e.HoldUntil, e.Reason, e.status = h.to, "", h.hold, h.reason, nil
	}
	s.changed(changedPlaces)
}

// rollBack gives the pair's targets back to the source. The destination, if
// it was asked, may have started them although its answer is lost: it stops
// first. A shard that does not answer here is brought to its assignment by
// the next cycles.
func (s *Sharder) rollBack(ctx context.Context, pair []*handOver, from, to *shardState, cause error) {
	s.setRunning(pair, from.name)
	for _, h := range pair {
		s.state.Targets[h.id].MoveTo = ""
		h.err = fmt.Errorf("move target %s from %s to %s, rolled back: %w", h.id, h.from, h.to, cause)
	}
	s.changed(changedPlaces)
	for _, sh := range []*shardState{to, from} {
		if sh == nil {
			continue
		}
		if err := s.bring(ctx, sh); err != nil {
			s.fail(applyReason(err), fmt.Errorf("roll back: %w", err))
		}
	}
}

func (s *Sharder) setRunning(pair []*handOver, shard string) {
	for _, h := range pair {
		s.state.Targets[h.id].running = shard
	}
}

// bring sends a shard its assignment of this moment.
func (s *Sharder) bring(ctx context.Context, sh *shardState) error {
	a, needed := s.next(sh)
	if !needed {
		return nil
	}
	s.send(ctx, sh, a)
	if !sh.acked {
		return sh.err
	}
	return nil
}
