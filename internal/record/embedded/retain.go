package embedded

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"
)

// retainEvery is how often retention looks.
const retainEvery = time.Minute

// Run keeps the retention until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		s.Retain()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// oldestKept is the name of the oldest day within MaxAge.
func (s *Store) oldestKept() string {
	return s.cfg.Now().Add(-s.cfg.MaxAge).UTC().Format(time.DateOnly)
}

// Retain removes the day files that are too old, then the oldest while all
// together are too big; never today's. A day that is still to come is what a
// wrong clock or a liar has told: such files age by when they were written,
// and are the first to go.
func (s *Store) Retain() {
	now := s.cfg.Now().UTC()
	oldest, today, tomorrow := s.oldestKept(), now.Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	var total int64
	full := false
	days := s.sorted() // newest first: from the first that does not fit, all go
	slices.SortStableFunc(days, func(a, b *day) int {
		return cmp.Compare(btoi(a.name > tomorrow), btoi(b.name > tomorrow))
	})
	for _, d := range days {
		size := d.size()
		full = full || s.cfg.MaxBytes > 0 && total+size > s.cfg.MaxBytes && (d.name < today || d.name > tomorrow)
		switch {
		case d.name < oldest, d.name > tomorrow && d.written().Before(now.Add(-s.cfg.MaxAge)):
			s.remove(d, "age", size)
		case full:
			s.remove(d, "bytes", size)
		default:
			total += size
		}
	}
	s.metrics.bytes.Set(float64(total))
}

func (s *Store) remove(d *day, why string, size int64) {
	errs := []error{d.close()} // waits for readers, who may need mu
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.days[d.name] != d {
		return // moved aside meanwhile
	}
	for _, f := range files(d.path) {
		if err := os.Remove(f); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Error("expired day file could not be removed", "path", d.path, "err", err)
	}
	delete(s.days, d.name)
	s.metrics.removed.WithLabelValues(why).Inc()
	s.log.Info("day file removed by retention", "path", d.path, "reason", why, "bytes", size)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// written is when the file was last written to; now when that is not known.
func (d *day) written() time.Time {
	var t time.Time
	for _, f := range files(d.path) {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(t) && !strings.HasSuffix(f, "-shm") {
			t = info.ModTime()
		}
	}
	if t.IsZero() {
		return time.Now()
	}
	return t
}

func (d *day) size() (n int64) {
	for _, f := range files(d.path) {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

// State is what people should know of the store.
type State struct {
	Days  int   `json:"days"`
	Bytes int64 `json:"bytes"`
	// Oldest and Newest are days such as 2026-11-30, empty when there is none.
	Oldest string `json:"oldest,omitempty"`
	Newest string `json:"newest,omitempty"`
	// Quarantined are the corrupt files that were moved aside.
	Quarantined []string `json:"quarantined,omitempty"`
}

// State returns the present state.
func (s *Store) State() State {
	days := s.sorted()
	st := State{Days: len(days)}
	for i, d := range days {
		st.Bytes += d.size()
		st.Oldest = d.name
		if i == 0 {
			st.Newest = d.name
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Quarantined = append(st.Quarantined, s.quarantined...)
	return st
}
