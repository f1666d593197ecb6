package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/statefile"
)

// StaleError refuses an assignment that is older than the one in force.
type StaleError struct {
	Epoch, Revision         int64 // what came
	HaveEpoch, HaveRevision int64 // what is in force
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("assignment of epoch %d revision %d is older than the one in force, epoch %d revision %d: another sharder is at work",
		e.Epoch, e.Revision, e.HaveEpoch, e.HaveRevision)
}

// errDisk marks an assignment that could not be kept; nothing was changed.
var errDisk = errors.New("assignment not kept")

// assigner owns the assignment. Its turn channel is the lock: whoever holds
// the token may touch the fields, and only the snapshot is read without it.
type assigner struct {
	file    string
	db      storage.Queryable
	scraper *scraper
	metrics *metrics
	turn    chan struct{} // capacity 1

	current target.Assignment
	want    *wanted
	// leaving are handed-over targets whose stop has not been confirmed yet.
	leaving map[string]*scrape.Target
	// done says that current is in force; answer is what was said of it.
	done   bool
	answer target.Applied

	publish func(*inForce) // hands readers a new immutable view
}

// inForce is what readers see: the targets wanted now, and the last assignment
// that was fully in force. A sharder that sees an old revision sends the
// newest again.
type inForce struct {
	epoch, revision int64
	want            *wanted
}

func newAssigner(file string, db storage.Queryable, s *scraper, m *metrics, publish func(*inForce)) *assigner {
	return &assigner{
		file: file, db: db, scraper: s, metrics: m, publish: publish,
		turn:    make(chan struct{}, 1),
		want:    translate(target.Assignment{}, nil),
		leaving: map[string]*scrape.Target{},
		done:    true,
	}
}

// restore puts a kept assignment in force again.
func (a *assigner) restore(ctx context.Context, kept target.Assignment) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	a.take(kept)
	return a.enforce(ctx)
}

// apply keeps next on disk and puts it in force. The same revision again gives
// the same answer; an error after errDisk's stage leaves next kept, and the
// same revision again goes on where it stopped.
func (a *assigner) apply(ctx context.Context, next target.Assignment) (target.Applied, error) {
	if err := a.lock(ctx); err != nil {
		return target.Applied{}, err
	}
	defer a.unlock()
	switch {
	case next.Epoch < a.current.Epoch, next.Epoch == a.current.Epoch && next.Revision < a.current.Revision:
		return target.Applied{}, &StaleError{next.Epoch, next.Revision, a.current.Epoch, a.current.Revision}
	case next.Epoch == a.current.Epoch && next.Revision == a.current.Revision && a.done:
		return a.answer, nil
	case next.Epoch == a.current.Epoch && next.Revision == a.current.Revision:
		// kept already: go on
	default:
		kept := next
		kept.HandedOver = nil // it describes the step to this assignment only
		if err := statefile.Write(a.file, kept); err != nil {
			return target.Applied{}, fmt.Errorf("%w: %w", errDisk, err)
		}
		a.take(next)
	}
	if err := a.enforce(ctx); err != nil {
		return target.Applied{}, err
	}
	return a.answer, nil
}

// take makes next the current assignment, not yet in force.
func (a *assigner) take(next target.Assignment) {
	a.want = translate(next, a.want)
	a.current = next
	a.done = false
	a.metrics.assigned(next, len(a.want.invalid), len(a.want.badPool))
	a.publish(&inForce{epoch: a.answer.Epoch, revision: a.answer.Revision, want: a.want})
	active := a.scraper.active()
	for _, id := range next.HandedOver {
		if t, ok := active[id]; ok {
			a.leaving[id] = t
		}
	}
	maps.DeleteFunc(a.leaving, func(id string, _ *scrape.Target) bool {
		_, back := a.want.targets[id]
		return back
	})
}

func (a *assigner) enforce(ctx context.Context) error {
	silent := make(map[string]bool, len(a.leaving))
	for id := range a.leaving {
		silent[id] = true
	}
	if err := a.scraper.apply(ctx, a.want, silent); err != nil {
		return err
	}
	answer := target.Applied{Epoch: a.current.Epoch, Revision: a.current.Revision}
	for id, t := range a.leaving {
		last, err := a.lastSample(ctx, t)
		if err != nil {
			return fmt.Errorf("find the last sample of target %s: %w", id, err)
		}
		if answer.LastSamples == nil {
			answer.LastSamples = map[string]int64{}
		}
		answer.LastSamples[id] = last
	}
	a.leaving = map[string]*scrape.Target{}
	a.answer, a.done = answer, true
	a.publish(&inForce{epoch: answer.Epoch, revision: answer.Revision, want: a.want})
	return nil
}

// prune lets the scraper forget pools whose time has come, and finishes what
// an earlier change could not.
func (a *assigner) prune(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	if !a.done {
		return a.enforce(ctx)
	}
	if len(a.scraper.retired) == 0 {
		return nil
	}
	return a.scraper.apply(ctx, a.want, nil)
}

// lastSample is the time of the newest sample of up of a stopped target.
func (a *assigner) lastSample(ctx context.Context, t *scrape.Target) (int64, error) {
	last := t.LastScrape()
	if last.IsZero() {
		return 0, nil
	}
	matchers := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "up")}
	t.LabelsRange(func(l labels.Label) {
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
	})
	from, to := last.Add(-time.Minute).UnixMilli(), last.Add(time.Minute).UnixMilli()
	q, err := a.db.Querier(from, to)
	if err != nil {
		return 0, err
	}
	var newest int64
	set := q.Select(ctx, false, &storage.SelectHints{Start: from, End: to}, matchers...)
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			newest = max(newest, it.AtT())
		}
		if err := it.Err(); err != nil {
			return 0, errors.Join(err, q.Close())
		}
	}
	return newest, errors.Join(set.Err(), q.Close())
}

func (a *assigner) lock(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the change before this one: %w", ctx.Err())
	}
}

func (a *assigner) unlock() { <-a.turn }
