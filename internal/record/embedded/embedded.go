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
	state       *sql.DB
	changed     chan struct{} // closed and replaced at every commit
	quarantined []string
	closed      bool
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
		days: map[string]*day{}, changed: make(chan struct{}),
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
		if strings.Contains(e.Name(), ".corrupt-") && !strings.HasSuffix(e.Name(), "-wal") && !strings.HasSuffix(e.Name(), "-shm") {
			s.quarantined = append(s.quarantined, filepath.Join(cfg.Dir, e.Name()))
		}
		if _, err := time.Parse(time.DateOnly, name); !ok || err != nil {
			continue
		}
		if s.days[name], err = newDay(cfg.Dir, name); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.metrics.quarantined.Set(float64(len(s.quarantined)))
	return s, nil
}

// openState opens the positions. They can be rebuilt by a relist, so a
// corrupt file is moved aside, and commits need not be fsynced: a position
// that is lost or old costs a replay only.
func (s *Store) openState() error {
	path := filepath.Join(s.cfg.Dir, "state.db")
	for attempt := 0; ; attempt++ {
		db, err := openDB(path, "NORMAL", 1)
		if err != nil {
			return err
		}
		_, err = db.ExecContext(context.Background(), `CREATE TABLE IF NOT EXISTS positions (
			cluster TEXT PRIMARY KEY, resource_version TEXT NOT NULL, at INTEGER NOT NULL)`)
		if err == nil {
			s.state = db
			return nil
		}
		err = errors.Join(err, db.Close())
		if !hasCode(err, codeCorrupt, codeNotADB) || attempt > 0 {
			return fmt.Errorf("open %s: %w; check the disk, the permissions and that no other Fleetwatch uses the directory", path, err)
		}
		aside, moveErr := moveAside(path)
		if moveErr != nil {
			return fmt.Errorf("move the corrupt %s aside: %w", path, moveErr)
		}
		s.log.Error("position file is corrupt and was moved aside; every cluster is listed again", "path", aside, "err", err)
	}
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
	errs = append(errs, s.state.Close())
	<-s.leader
	return errors.Join(errs...)
}

// Position returns where the watch of a cluster stands; ok is false when it
// never stood anywhere.
func (s *Store) Position(ctx context.Context, cluster string) (p record.Position, ok bool, err error) {
	p.Cluster = cluster
	var at int64
	err = s.state.QueryRowContext(ctx, "SELECT resource_version, at FROM positions WHERE cluster = ?", cluster).Scan(&p.ResourceVersion, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("read the position of %s: %w", cluster, err)
	}
	p.At = fromNanos(at)
	return p, true, nil
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

// with calls fn with a day's file and moves the file aside when it is corrupt.
func (s *Store) with(ctx context.Context, d *day, fn func(*sql.DB) error) error {
	err := d.use(ctx, fn)
	if hasCode(err, codeCorrupt, codeNotADB) {
		s.quarantine(d, err)
	}
	return err
}

func (s *Store) quarantine(d *day, cause error) {
	if err := d.close(); err != nil {
		s.log.Warn("corrupt day file did not close cleanly", "path", d.path, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.days[d.name] != d {
		return // somebody else was first
	}
	aside, err := moveAside(d.path)
	if err != nil {
		s.log.Error("corrupt day file could not be moved aside", "path", d.path, "err", err)
		return // stays in the map, closed: reported as unseen, not written to
	}
	delete(s.days, d.name)
	s.quarantined = append(s.quarantined, aside)
	s.metrics.quarantined.Set(float64(len(s.quarantined)))
	s.log.Error("day file is corrupt and was moved aside; its records are out of service", "path", aside, "err", cause)
}
