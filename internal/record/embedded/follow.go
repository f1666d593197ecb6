package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

// followBatch bounds what a follower reads at once.
const followBatch = 500

// Follow implements store.Searcher. A follower keeps its own place in every
// day file and is only told that there is more, so a slow one holds no memory.
func (s *Store) Follow(ctx context.Context, q store.Search, emit func([]record.Record) error) error {
	q.Until, q.After = time.Time{}, ""
	f := &follower{store: s, search: q, emit: emit, places: map[*day]int64{}, shown: map[string]bool{}}
	changed := s.mark(f.places)
	if err := f.begin(ctx); err != nil {
		return err
	}
	for {
		if err := f.catchUp(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the end of ctx is the end of the following
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		s.mu.Lock()
		changed = s.changed
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return fmt.Errorf("follow: %w", errClosed)
		}
	}
}

// mark notes the last durable record of each day file that was written to.
func (s *Store) mark(places map[*day]int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.days {
		if d.seq >= 0 {
			places[d] = d.seq
		}
	}
	return s.changed
}

type follower struct {
	store  *Store
	search store.Search
	emit   func([]record.Record) error
	places map[*day]int64
	// shown are the IDs of the first page, which may also come as news.
	shown map[string]bool
}

func (f *follower) begin(ctx context.Context) error {
	if f.search.Limit == 0 {
		return nil
	}
	page, err := f.store.Search(ctx, f.search)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as above
		}
		return err
	}
	for _, r := range page.Items {
		f.shown[r.ID] = true
	}
	slices.Reverse(page.Items)
	if len(page.Items) == 0 {
		return nil
	}
	return f.emit(page.Items)
}

// catchUp emits what became durable since the last call.
func (f *follower) catchUp(ctx context.Context) error {
	type news struct {
		day      *day
		from, to int64
	}
	var list []news
	f.store.mu.Lock()
	for _, d := range f.store.days {
		from, ok := f.places[d]
		if !ok {
			from = d.base // first written to after the following began
		}
		if d.seq > from {
			list = append(list, news{d, from, d.seq})
		}
	}
	f.store.mu.Unlock()
	slices.SortFunc(list, func(a, b news) int {
		if a.day.name < b.day.name {
			return -1
		}
		return 1
	})
	for _, n := range list {
		for n.from < n.to {
			next, err := f.step(ctx, n.day, n.from)
			if errors.Is(err, errGone) || isCorrupt(err) {
				break // nothing more to come from this file
			}
			if err != nil {
				return err
			}
			n.from = next
			f.places[n.day] = next
		}
	}
	clear(f.shown) // all of the first page's doubles are behind us
	return nil
}

func (f *follower) step(ctx context.Context, d *day, from int64) (int64, error) {
	var out []record.Record
	last := from
	err := f.store.with(ctx, d, func(db *sql.DB) error {
		return collect(ctx, db, selectNew, []any{from, followBatch}, func(seq int64, r record.Record) {
			last = seq
			if !f.shown[r.ID] && f.search.Match(&r) {
				out = append(out, r)
			}
		})
	})
	if err != nil {
		return from, err
	}
	if last == from {
		return from, errGone // rows that were counted cannot be found
	}
	if len(out) > 0 {
		if err := f.emit(out); err != nil {
			return from, err
		}
	}
	return last, nil
}
