package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// Config of a Store.
type Config struct {
	// Dir holds the files; it is created.
	Dir string
	// MaxAge is how long records are kept, by whole days; 0 means 30 days.
	MaxAge time.Duration
	// MaxBytes bounds the files; 0 means no bound. Today's file is never removed.
	MaxBytes   int64
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock of retention; nil means time.Now.
	Now func() time.Time
}

// Store implements store.Searcher and the journal of the event sink.
type Store struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	// leader has capacity 1: who put a value in commits the whole queue.
	leader chan struct{}

	mu          sync.Mutex // guards below
	queue       []*pending
	days        map[string]*day
	changed     chan struct{} // closed and replaced at every commit
	quarantined []string
	gaps        []record.Record // for the next commit
	closed      bool

	stateMu sync.Mutex // guards below; taken before mu
	state   *sql.DB
	// epoch rises when positions are dropped; told is the epoch in which a
	// cluster last asked for its position.
	epoch int
	told  map[string]int
}

// Open opens the store in cfg.Dir. Run keeps its retention; Close ends it.
func Open(cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 30 * 24 * time.Hour
	}
	if cfg.MaxAge < 24*time.Hour || cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("open record store: keep at least 24h (got %s) and a bound in bytes that is not negative (got %d)", cfg.MaxAge, cfg.MaxBytes)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the record store: %w; choose another --data-dir", err)
	}
	s := &Store{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer), leader: make(chan struct{}, 1),
		days: map[string]*day{}, told: map[string]int{}, changed: make(chan struct{}),
	}
	if err := s.openState(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the record store: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".db")
		path := filepath.Join(cfg.Dir, e.Name())
		if strings.Contains(e.Name(), ".corrupt-") && !slices.Contains(s.quarantined, path) && !strings.HasSuffix(e.Name(), "-wal") && !strings.HasSuffix(e.Name(), "-shm") {
			s.quarantined = append(s.quarantined, path)
		}
		if _, err := time.Parse(time.DateOnly, name); !ok || err != nil {
			continue
		}
		if s.days[name], err = newDay(cfg.Dir, name); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.metrics.quarantined.Set(float64(len(s.quarantined)))
	if d := s.days[cfg.Now().UTC().Format(time.DateOnly)]; d != nil { // the one that is written to
		_ = s.with(context.Background(), d, check) // what is no corruption is met again by who uses it
	}
	return s, nil
}

// Close closes every file. Append, Search and Follow fail from then on.
func (s *Store) Close() error {
	s.leader <- struct{}{} // no commit is running, and none starts
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		<-s.leader
		return nil
	}
	s.closed = true
	close(s.changed)
	var errs []error
	for _, d := range s.days {
		errs = append(errs, d.close())
	}
	s.mu.Unlock()
	s.stateMu.Lock()
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	s.stateMu.Unlock()
	s.mu.Lock()
	<-s.leader
	return errors.Join(errs...)
}

// sorted returns the day files, newest first.
func (s *Store) sorted() []*day {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*day, 0, len(s.days))
	for _, d := range s.days {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *day) int { return strings.Compare(b.name, a.name) })
	return list
}
