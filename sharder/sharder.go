package sharder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/statefile"
)

// ShardAddress is one shard: its name, which it confirms, and its base URL.
type ShardAddress struct {
	Name string
	URL  string
}

// Config is the input of New. Zero durations and counts mean the defaults.
type Config struct {
	// DataDir holds sharder/state.json.
	DataDir string
	// Shards are all the shards there are.
	Shards []ShardAddress
	// Sources gives the collectors of all the clusters there are. A cluster
	// that is not among them is gone, and so are its targets; nil means that
	// the clusters are not known yet, and removes nothing. Give the same
	// Source for a cluster each time: it caches.
	Sources func() []Source
	// Options bound the planner.
	Options Options

	// Interval between cycles; default 15 s.
	Interval time.Duration
	// ListTimeout bounds reading one target list (default 10 s), ListWait how
	// long a cycle waits for slow ones (default 2 s).
	ListTimeout, ListWait time.Duration
	// StatusTimeout bounds reading one shard's status; default 3 s.
	StatusTimeout time.Duration
	// ApplyTimeout bounds one assignment, scrapes in flight at a source
	// included; default 30 s.
	ApplyTimeout time.Duration
	// ProbeTimeout bounds all trial scrapes of one cycle, or those of one
	// hand-over (default 5 s), ProbeConcurrency how many run at once (16).
	ProbeTimeout     time.Duration
	ProbeConcurrency int
	// Cooldown keeps a target where a plan moved it (default 2 h: its series
	// stay in the source's head for that long), PinFor where a user did (24 h).
	Cooldown, PinFor time.Duration
	// AdoptionWait is how long a sharder that has no state of its own waits
	// for every shard to say what it scrapes, before it places targets;
	// default 30 s.
	AdoptionWait time.Duration

	// Transport carries requests to shards; nil means a new default one.
	Transport http.RoundTripper
	// Logger is discarded, and metrics go nowhere, when nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	c.Options = c.Options.withDefaults()
	c.Interval = cmp.Or(c.Interval, 15*time.Second)
	c.ListTimeout = cmp.Or(c.ListTimeout, 10*time.Second)
	c.ListWait = cmp.Or(c.ListWait, 2*time.Second)
	c.StatusTimeout = cmp.Or(c.StatusTimeout, 3*time.Second)
	c.ApplyTimeout = cmp.Or(c.ApplyTimeout, 30*time.Second)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 5*time.Second)
	c.ProbeConcurrency = cmp.Or(c.ProbeConcurrency, 16)
	c.Cooldown = cmp.Or(c.Cooldown, 2*time.Hour)
	c.PinFor = cmp.Or(c.PinFor, 24*time.Hour)
	c.AdoptionWait = cmp.Or(c.AdoptionWait, 30*time.Second)
	if c.Transport == nil {
		c.Transport = &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	errs := []error{c.Options.validate()}
	if c.DataDir == "" {
		errs = append(errs, errors.New("data folder: is empty"))
	}
	if c.Sources == nil {
		errs = append(errs, errors.New("sources: are missing"))
	}
	if len(c.Shards) == 0 {
		errs = append(errs, errors.New("shards: want at least one"))
	}
	seen := map[string]bool{}
	for _, s := range c.Shards {
		if s.Name == "" || s.URL == "" || seen[s.Name] {
			errs = append(errs, fmt.Errorf("shard %q at %q: want a name of its own and a URL", s.Name, s.URL))
		}
		seen[s.Name] = true
	}
	return c, errors.Join(errs...)
}

// Sharder runs the cycles. Its exported methods may be called from anywhere.
type Sharder struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	file    string

	trigger  chan struct{}     // capacity 1
	requests chan *moveRequest // unbuffered: Run answers each
	snapshot atomic.Pointer[Snapshot]

	// All below belongs to Run's goroutine.
	lists    *lists
	state    *state
	shards   []*shardState // by name
	byName   map[string]*shardState
	revision int64     // grows with every change within the epoch
	saved    time.Time // when the state was last written
	unsaved  change
	fresh    bool // there was no state file: shards may know more than we do
	started  time.Time
	listings map[string]listing
	last     Decisions
	cycle    CycleView
	told     []string // the errors of the cycle before
}

// change says how urgent it is to write the state.
type change int

const (
	changedNothing change = iota
	changedWeights        // written with the next placement, or after a minute
	changedPlaces         // written before anyone acts on it
)

// atOnce makes any change urgent.
func (c change) atOnce() change {
	if c == changedNothing {
		return c
	}
	return changedPlaces
}

// shardState is what Run knows of one shard.
type shardState struct {
	shardClient

	status    *target.Status // nil while it does not answer
	seen      time.Time      // when it last answered
	contacted bool           // it has answered this process
	err       error          // the last error, nil once all is well

	content  uint64 // fingerprint of the newest assignment
	revision int64  // its revision, 0 before the first
	acked    bool   // the shard has it in force
	// maybe are the targets that the shard may be scraping.
	maybe map[string]bool
}

func (s *shardState) up() bool { return s.status != nil }

// notStoring is why the shard keeps no samples, in its own words; empty when
// it has not said so.
func (s *shardState) notStoring() string {
	if s.status != nil {
		return s.status.StorageError
	}
	if said, ok := errors.AsType[notStoringError](s.err); ok {
		return string(said)
	}
	return ""
}

// New validates the configuration. It touches no disk and starts nothing.
func New(cfg Config) (*Sharder, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("sharder configuration: %w", err)
	}
	s := &Sharder{
		cfg:      cfg,
		log:      cfg.Logger,
		file:     filepath.Join(cfg.DataDir, "sharder", "state.json"),
		trigger:  make(chan struct{}, 1),
		requests: make(chan *moveRequest),
		lists:    &lists{timeout: cfg.ListTimeout, wait: cfg.ListWait, now: time.Now, byCluster: map[string]*listing{}},
		state:    newState(),
		byName:   map[string]*shardState{},
	}
	client := &http.Client{Transport: cfg.Transport}
	for _, a := range cfg.Shards {
		one := &shardState{
			shardClient: shardClient{name: a.Name, base: strings.TrimSuffix(a.URL, "/"), http: client},
			maybe:       map[string]bool{},
		}
		s.shards = append(s.shards, one)
		s.byName[a.Name] = one
	}
	sortShards(s.shards)
	s.metrics = newMetrics(cfg.Registerer, s.shards)
	s.snapshot.Store(s.view())
	return s, nil
}

// Trigger asks for a cycle now, such as after a cluster was added.
func (s *Sharder) Trigger() {
	select {
	case s.trigger <- struct{}{}:
	default: // one is pending already
	}
}

// Snapshot is the state after the last cycle or move. It is not to be changed.
func (s *Sharder) Snapshot() *Snapshot { return s.snapshot.Load() }

// Run restores the state and works until ctx ends. A hand-over under way is
// finished first.
func (s *Sharder) Run(ctx context.Context) error {
	if err := s.restore(); err != nil {
		return err
	}
	defer s.lists.running.Wait()
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	s.runCycle(ctx)
	for {
		select {
		case <-ctx.Done():
			s.changed(s.unsaved.atOnce())
			return s.save()
		case req := <-s.requests:
			req.done <- s.serveMove(ctx, req)
		case <-s.trigger:
			s.runCycle(ctx)
		case <-tick.C:
			s.runCycle(ctx)
		}
	}
}

// restore reads the state and opens a new epoch, on disk before it is used.
func (s *Sharder) restore() error {
	if err := statefile.Sweep(s.file); err != nil {
		return fmt.Errorf("restore the sharder: %w", err)
	}
	found, err := statefile.Read(s.file, s.state)
	if errors.Is(err, statefile.ErrCorrupt) {
		aside, moveErr := statefile.Quarantine(s.file)
		if moveErr != nil {
			return errors.Join(err, moveErr)
		}
		s.log.Error("sharder state is corrupt; asking the shards what they scrape", "err", err, "file", aside)
		s.state, found = newState(), false
	} else if err != nil {
		return fmt.Errorf("restore the sharder: %w", err)
	}
	s.state.restored()
	s.state.Epoch++
	s.fresh, s.started = !found, time.Now()
	if err := statefile.Write(s.file, s.state); err != nil {
		return fmt.Errorf("keep the sharder's state: %w", err)
	}
	s.saved = time.Now()
	s.log.Info("sharder started", "epoch", s.state.Epoch, "targets", len(s.state.Targets))
	return nil
}

// save writes the state if what changed is urgent enough.
func (s *Sharder) save() error {
	if s.unsaved == changedNothing || (s.unsaved == changedWeights && time.Since(s.saved) < time.Minute) {
		return nil
	}
	if err := statefile.Write(s.file, s.state); err != nil {
		return fmt.Errorf("keep the sharder's state: %w", err)
	}
	s.saved, s.unsaved = time.Now(), changedNothing
	return nil
}

func (s *Sharder) changed(c change) { s.unsaved = max(s.unsaved, c) }
