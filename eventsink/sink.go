package eventsink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// Journal is the durable side of the sink. Implementations allow concurrent
// use; the sink calls Seen and Append for one cluster from one goroutine.
type Journal interface {
	// Position returns where the watch of a cluster stands; ok is false when
	// it has no position.
	Position(ctx context.Context, cluster string) (p record.Position, ok bool, err error)
	// Seen returns what the newest durable record says of each Event that has
	// one.
	Seen(ctx context.Context, cluster string, events []record.EventKey) (map[string]record.Seen, error)
	// Append makes the records durable, ignoring those whose ID is there
	// already, and after them the position, unless its Cluster is empty. It
	// returns how many were new. After an error the position is unchanged,
	// and the records may or may not be durable. The error record.ErrRelist
	// has the cluster listed again, after Position has none any more.
	Append(ctx context.Context, records []record.Record, position record.Position) (int, error)
}

// Cluster is one cluster to watch.
type Cluster struct {
	// Name is the immutable value of the cluster label; it goes into the IDs.
	Name string
	// REST is the way to the cluster's API server.
	REST *rest.Config
}

// Config of a Sink.
type Config struct {
	Clusters []Cluster
	Journal  Journal
	// EventTTL is how long the API servers keep Events; 0 means 1 hour,
	// which is their default.
	EventTTL   time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Sink watches the Events of all clusters.
type Sink struct {
	watchers []*watcher
}

// New checks the configuration; it connects to nothing.
func New(cfg Config) (*Sink, error) {
	if cfg.Journal == nil {
		return nil, errors.New("event sink: no journal")
	}
	if cfg.EventTTL < 0 {
		return nil, fmt.Errorf("event sink: the TTL of events is %s; give what the API servers have as --event-ttl", cfg.EventTTL)
	}
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registerer)
	s := &Sink{}
	names := map[string]bool{}
	for _, c := range cfg.Clusters {
		if c.Name == "" || names[c.Name] || c.REST == nil {
			return nil, fmt.Errorf("event sink: cluster %q has no name, no client configuration, or is there twice", c.Name)
		}
		names[c.Name] = true
		s.watchers = append(s.watchers, newWatcher(c, cfg, m.of(c.Name)))
	}
	slices.SortFunc(s.watchers, func(a, b *watcher) int { return strings.Compare(a.cluster, b.cluster) })
	return s, nil
}

// Run watches until ctx ends.
func (s *Sink) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, w := range s.watchers {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	return nil
}

// State returns a snapshot for each cluster, by name.
func (s *Sink) State() []State {
	states := make([]State, len(s.watchers))
	for i, w := range s.watchers {
		states[i] = w.state.get()
	}
	return states
}
