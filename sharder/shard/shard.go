package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/statefile"
)

// pruneEvery is how often pools that were emptied are looked at.
const pruneEvery = 30 * time.Second

// roomEvery is how often a shard without disk space looks for some.
const roomEvery = 2 * time.Second

// Shard is one Prometheus. Its handler answers from New on, with 503 until
// Run has read the write-ahead log and put the kept assignment in force.
type Shard struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	prober  *prober
	replay  *tsdb.DBStats
	born    time.Time

	free      func(dir string) (uint64, error) // free space of a file system
	roomEvery time.Duration                    // how often it is looked at while there is none

	inForce atomic.Pointer[inForce]
	storage atomic.Pointer[StorageError] // why nothing is stored, nil while it is
	parts   atomic.Pointer[parts]        // nil while not ready
}

// parts are what a ready shard serves from.
type parts struct {
	db       *tsdb.DB
	assigner *assigner
	statuses *statuses
	guard    *guard
	prom     handler
}

// New validates the configuration. It touches no disk and starts nothing.
func New(cfg Config) (*Shard, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("shard configuration: %w", err)
	}
	m := newMetrics(cfg.Registry)
	return &Shard{
		cfg:     cfg,
		log:     cfg.Logger.With("shard", cfg.Name),
		metrics: m,
		prober:  newProber(cfg.ProbeConcurrency, cfg.ProbeBodyLimit, m),
		replay:  tsdb.NewDBStats(),
		born:    time.Now().UTC(),
		free:    freeSpace, roomEvery: roomEvery,
	}, nil
}

// Ready reports whether the shard scrapes and answers queries.
func (s *Shard) Ready() bool { return s.parts.Load() != nil }

// Run opens the database, restores the assignment and scrapes until ctx ends;
// then it waits for scrapes in flight and closes the database. Without the
// disk space to open the database safely it waits for some, and says so; when
// the write-ahead log cannot be written it ends at once with a *StorageError.
func (s *Shard) Run(ctx context.Context) (err error) {
	kept, err := s.readKept()
	if err != nil {
		return err
	}
	if err := s.awaitRoom(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	db, err := s.openDB()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	engine, err := s.newEngine()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	guard := newGuard(db, TSDBDir(s.cfg.DataDir))
	sc, err := newScraper(s.cfg.Replica, guard, s.cfg.Registry, s.log)
	if err != nil {
		return err
	}
	prom, err := s.newPromAPI(db, engine, sc)
	if err != nil {
		return err
	}
	managerDone := make(chan error, 1) // closed by nobody: one value
	go func() { managerDone <- sc.run() }()
	defer func() {
		s.parts.Store(nil)
		sc.stop()
		err = errors.Join(err, <-managerDone)
	}()

	as := newAssigner(s.cfg.assignmentFile(), db, sc, s.metrics, s.inForce.Store)
	if err := as.restore(ctx, kept); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("restore the assignment of shard %s: %w", s.cfg.Name, err)
	}
	s.parts.Store(&parts{
		db: db, assigner: as, prom: prom,
		statuses: &statuses{db: db, manager: sc.manager, now: time.Now}, guard: guard,
	})
	s.log.Info("shard ready", "targets", len(kept.Targets), "epoch", kept.Epoch, "revision", kept.Revision,
		"series", db.Head().NumSeries())
	err = s.tend(ctx, as, guard)
	s.log.Info("shard stopping")
	return err
}

// awaitRoom returns once the database can be opened safely, or ctx ends.
func (s *Shard) awaitRoom(ctx context.Context) error {
	dir := TSDBDir(s.cfg.DataDir)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create the series folder of shard %s: %w", s.cfg.Name, err)
	}
	tick := time.NewTicker(s.roomEvery)
	defer tick.Stop()
	for {
		err := roomFor(dir, s.free)
		full, isFull := errors.AsType[*StorageError](err)
		if !isFull {
			s.storage.Store(nil)
			return err
		}
		if s.storage.Swap(full) == nil {
			s.log.Error("shard does not start before there is disk space", "err", full, "detail", full.Cause)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tend prunes emptied pools until ctx ends, or nothing can be stored any more.
func (s *Shard) tend(ctx context.Context, as *assigner, g *guard) error {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.failed:
			s.storage.Store(g.err)
			return fmt.Errorf("shard %s %w", s.cfg.Name, g.err)
		case <-tick.C:
			if err := as.prune(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("emptied pools stay for now", "err", err)
			}
		}
	}
}

// readKept gives the assignment on disk. A corrupt one is set aside: the
// sharder sends it again, and a shard that does not start helps nobody.
func (s *Shard) readKept() (target.Assignment, error) {
	if err := os.MkdirAll(s.cfg.DataDir, 0o750); err != nil {
		return target.Assignment{}, fmt.Errorf("create the data folder of shard %s: %w", s.cfg.Name, err)
	}
	if err := statefile.Sweep(s.cfg.assignmentFile()); err != nil {
		return target.Assignment{}, err
	}
	var kept target.Assignment
	_, err := statefile.Read(s.cfg.assignmentFile(), &kept)
	if errors.Is(err, statefile.ErrCorrupt) {
		aside, moveErr := statefile.Quarantine(s.cfg.assignmentFile())
		if moveErr != nil {
			return target.Assignment{}, errors.Join(err, moveErr)
		}
		s.log.Error("kept assignment is corrupt; starting without targets until the sharder sends them", "err", err, "file", aside)
		return target.Assignment{}, nil
	}
	return kept, err
}

func (s *Shard) openDB() (*tsdb.DB, error) {
	back, err := undoRepair(TSDBDir(s.cfg.DataDir))
	if err != nil {
		return nil, fmt.Errorf("open the series of shard %s: %w", s.cfg.Name, err)
	}
	if len(back) > 0 {
		s.log.Warn("a repair of the write-ahead log had not ended; it starts again", "segments", back)
	}
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = s.cfg.Retention.Milliseconds()
	opts.MinBlockDuration = blockDuration.Milliseconds()
	opts.MaxBlockDuration = blockDuration.Milliseconds()
	opts.WALCompression = compression.Snappy
	opts.StripeSize = s.cfg.StripeSize
	opts.OutOfOrderTimeWindow = 0
	opts.NoLockfile = false
	db, err := tsdb.Open(TSDBDir(s.cfg.DataDir), s.log, s.cfg.Registry, opts, s.replay)
	if err != nil {
		return nil, fmt.Errorf("open the series of shard %s in %s (is another shard using this folder?): %w", s.cfg.Name, TSDBDir(s.cfg.DataDir), err)
	}
	return db, nil
}

func (s *Shard) newEngine() (*promql.Engine, error) {
	tracker, err := promql.NewActiveQueryTracker(s.cfg.DataDir, s.cfg.QueryConcurrency, s.log)
	if err != nil {
		return nil, fmt.Errorf("track the queries of shard %s: %w", s.cfg.Name, err)
	}
	return promql.NewEngine(promql.EngineOpts{
		Logger: s.log, Reg: s.cfg.Registry,
		MaxSamples: s.cfg.QueryMaxSamples, Timeout: s.cfg.QueryTimeout,
		ActiveQueryTracker:       tracker,
		LookbackDelta:            5 * time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true,
		Parser: parser.NewParser(parser.Options{}),
	}), nil
}
