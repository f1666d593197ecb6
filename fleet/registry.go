package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of a Registry's Config.
const (
	DefaultInterval = 5 * time.Second
	DefaultTimeout  = 4 * time.Second
)

// Config is what New needs.
type Config struct {
	Clusters []Cluster
	// Interval is the time between two looks at one cluster, Timeout the time
	// that one look may take; zero means the default.
	Interval, Timeout time.Duration
	// Changed, when set, is called after a cluster has changed its State. It
	// must not block.
	Changed    func(Cluster, Status)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Registry watches the state of every cluster, each in its own goroutine.
type Registry struct {
	config Config
	state  *prometheus.GaugeVec

	mu       sync.Mutex // guards statuses
	statuses map[string]Status
}

// New returns a Registry in which every cluster is pending.
func New(config Config) *Registry {
	if config.Interval == 0 {
		config.Interval = DefaultInterval
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		config: config,
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleetwatch_fleet_cluster_state",
			Help: "1 for the state that the cluster is in, 0 for every other.",
		}, []string{"cluster", "state"}),
		statuses: map[string]Status{},
	}
	if config.Registerer != nil {
		config.Registerer.MustRegister(r.state)
	}
	for _, c := range config.Clusters {
		r.set(c, Status{State: StatePending, Nodes: -1})
	}
	return r
}

// Clusters returns the fleet in its fixed order.
func (r *Registry) Clusters() []Cluster { return r.config.Clusters }

// Status returns what the last look at the cluster found.
func (r *Registry) Status(id string) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.statuses[id]
}

// Run looks at every cluster until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, c := range r.config.Clusters {
		wg.Go(func() { r.watch(ctx, c) })
	}
	wg.Wait()
	return nil
}

func (r *Registry) watch(ctx context.Context, c Cluster) {
	ticker := time.NewTicker(r.config.Interval)
	defer ticker.Stop()
	for {
		r.once(ctx, c)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (r *Registry) once(ctx context.Context, c Cluster) {
	look, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	previous := r.Status(c.ID)
	next := Look(look, c, previous, time.Now())
	if ctx.Err() != nil {
		return // we are stopping: the answer says nothing about the cluster
	}
	r.set(c, next)
	if next.State == previous.State {
		return
	}
	level := slog.LevelInfo
	if next.State != StateReady {
		level = slog.LevelWarn
	}
	r.config.Logger.Log(ctx, level, "cluster changed state", "cluster", c.ID, "state", string(next.State), "reason", next.Reason)
	if r.config.Changed != nil {
		r.config.Changed(c, next)
	}
}

func (r *Registry) set(c Cluster, s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[c.ID] = s
	for _, state := range []State{StatePending, StateReady, StateDegraded, StateUnreachable, StateMisconfigured} {
		value := 0.0
		if state == s.State {
			value = 1
		}
		r.state.WithLabelValues(c.ID, string(state)).Set(value)
	}
}
