package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
)

// commitTimeout bounds one commit; it runs to its end even when the caller
// that leads it goes away, for others wait on it.
const commitTimeout = time.Minute

var errClosed = errors.New("the record store is closed")

// pending is one Append waiting for its commit.
type pending struct {
	records  []record.Record
	position record.Position
	inserted int
	done     chan error // capacity 1, one send
}

// Append makes the records durable, then the position (none when its Cluster
// is empty), and returns how many were not yet stored. After an error the
// position stands where it stood; appending the same again is harmless.
func (s *Store) Append(ctx context.Context, records []record.Record, position record.Position) (int, error) {
	p := &pending{records: records, position: position, done: make(chan error, 1)}
	s.mu.Lock()
	s.queue = append(s.queue, p)
	s.mu.Unlock()
	select {
	case s.leader <- struct{}{}:
		s.commitQueue(ctx)
		<-s.leader
	case err := <-p.done:
		return p.inserted, err
	}
	// Either this call's commit took p along, or an earlier leader's did.
	err := <-p.done
	return p.inserted, err
}

func (s *Store) commitQueue(ctx context.Context) {
	s.mu.Lock()
	group := s.queue
	s.queue = nil
	closed := s.closed
	s.mu.Unlock()
	if closed {
		for _, p := range group {
			p.done <- errClosed
		}
		return
	}
	err := s.commit(ctx, group)
	if err == nil || len(group) == 1 {
		for _, p := range group {
			p.done <- err
		}
		return
	}
	for _, p := range group { // one's trouble is not the others'
		p.done <- s.commit(ctx, []*pending{p})
	}
}

func (s *Store) commit(ctx context.Context, group []*pending) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	start := time.Now()
	oldest := s.oldestKept()
	byDay := map[string][]item{}
	gaps := &pending{records: s.takeGaps()}
	group = append([]*pending{gaps}, group...)
	for _, p := range group {
		p.inserted = 0
		for i := range p.records {
			r := &p.records[i]
			name := r.Time.UTC().Format(time.DateOnly)
			if name < oldest {
				s.metrics.expired.WithLabelValues(r.Cluster).Inc()
				continue
			}
			byDay[name] = append(byDay[name], item{r, p})
		}
	}
	names := make([]string, 0, len(byDay))
	for name := range byDay {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := s.writeDay(ctx, name, byDay[name]); err != nil {
			s.metrics.failures.Inc()
			s.putGaps(gaps.records)
			if hasCode(err, codeFull) {
				return fmt.Errorf("write records to %s: %w; free space on the disk or keep fewer records", name, err)
			}
			return fmt.Errorf("write records to %s: %w", name, err)
		}
	}
	if err := s.writePositions(ctx, group); errors.Is(err, record.ErrRelist) {
		return err
	} else if err != nil {
		s.metrics.failures.Inc()
		return fmt.Errorf("write positions: %w", err)
	}
	s.metrics.committed(time.Since(start))
	return nil
}

// item is a record and the Append it belongs to.
type item struct {
	record *record.Record
	owner  *pending
}

// day returns the day file of that name, which may not exist on disk yet.
func (s *Store) day(name string) (*day, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.days[name]; ok {
		return d, nil
	}
	d, err := newDay(s.cfg.Dir, name)
	if err != nil {
		return nil, err
	}
	s.days[name] = d
	return d, nil
}

func (s *Store) writeDay(ctx context.Context, name string, items []item) error {
	for attempt := 0; ; attempt++ {
		d, err := s.day(name)
		if err != nil {
			return err
		}
		err = s.with(ctx, d, func(db *sql.DB) error { return s.insert(ctx, db, d, items) })
		// A corrupt or removed file has made room for a new one.
		if attempt == 0 && (errors.Is(err, errGone) || isCorrupt(err)) {
			continue
		}
		return err
	}
}

func (s *Store) insert(ctx context.Context, db *sql.DB, d *day, items []item) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // fails only after the commit
	last := d.seqNow(s)
	if last < 0 {
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM records").Scan(&last); err != nil {
			return err
		}
	}
	base := last
	// Statements of a transaction are closed with it.
	insert, err := tx.PrepareContext(ctx, insertRecord)
	if err != nil {
		return err
	}
	words, err := tx.PrepareContext(ctx, insertWords)
	if err != nil {
		return err
	}
	fresh := make(map[*pending]int)
	for _, it := range items {
		res, err := insert.ExecContext(ctx, values(it.record)...)
		if err != nil {
			return fmt.Errorf("insert record %s: %w", it.record.ID, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			if err != nil {
				return err
			}
			continue
		}
		if last, err = res.LastInsertId(); err != nil {
			return err
		}
		if _, err := words.ExecContext(ctx, last, query.Text(it.record.Message)); err != nil {
			return fmt.Errorf("index record %s: %w", it.record.ID, err)
		}
		fresh[it.owner]++
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for p, n := range fresh {
		p.inserted += n
		s.metrics.records.Add(float64(n))
	}
	s.publish(d, base, last)
	return nil
}

func (d *day) seqNow(s *Store) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.seq
}

// publish wakes the followers.
func (s *Store) publish(d *day, base, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.base < 0 {
		d.base = base
	}
	d.seq = last
	if base != last && !s.closed {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}
