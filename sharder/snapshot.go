package sharder

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// States of a target in a Snapshot.
const (
	StateAssigned   = "assigned"
	StateUnassigned = "unassigned"
	StateMoving     = "moving"
)

// Snapshot is everything there is to show, as of one moment.
type Snapshot struct {
	Epoch    int64         `json:"epoch"`
	Cycle    CycleView     `json:"cycle"`
	Clusters []ClusterView `json:"clusters"`
	Shards   []ShardView   `json:"shards"`
	Targets  []TargetView  `json:"targets"` // by ID

	Assigned   int `json:"assigned"`
	Unassigned int `json:"unassigned"`
	Moving     int `json:"moving"`
	// Up, Down and Unknown count assigned targets by health.
	Up      int `json:"up"`
	Down    int `json:"down"`
	Unknown int `json:"unknown"`
	// MissingShards is how many more shards the targets want.
	MissingShards int `json:"missing_shards"`
}

// CycleView is the last cycle; its Number is 0 before the first.
type CycleView struct {
	Number   int64         `json:"number"`
	Time     time.Time     `json:"time"`
	Duration time.Duration `json:"duration_ns"`
	Errors   []string      `json:"errors,omitempty"`
}

// ClusterView is what one cluster's collector said last.
type ClusterView struct {
	Cluster string    `json:"cluster"`
	Synced  bool      `json:"synced"`
	Targets int       `json:"targets"`
	Read    time.Time `json:"read,omitzero"` // of the last good list
	Error   string    `json:"error,omitempty"`
}

// ShardView is one shard.
type ShardView struct {
	Name       string    `json:"name"`
	URL        string    `json:"url"`
	Up         bool      `json:"up"`
	LastSeen   time.Time `json:"last_seen,omitzero"`
	HeadSeries int64     `json:"head_series"`
	Capacity   int64     `json:"capacity"`
	Weight     int64     `json:"weight"` // of its targets
	Targets    int       `json:"targets"`
	// Fill is Weight as a part of Capacity.
	Fill     float64 `json:"fill"`
	Overfull bool    `json:"overfull"`
	// Ghosts are the head series beyond Weight: series that left, or of
	// scrapes that were refused. They go by themselves within hours.
	Ghosts int64 `json:"ghosts"`
	// Storing is false when the shard keeps no samples, or does not answer.
	Storing bool `json:"storing"`
	// InForce says that the shard has confirmed its newest assignment.
	InForce   bool   `json:"in_force"`
	LastError string `json:"last_error,omitempty"`
}

// TargetView is one target.
type TargetView struct {
	target.Target
	Shard      string        `json:"shard,omitempty"`
	MovingTo   string        `json:"moving_to,omitempty"`
	State      string        `json:"state"`
	Reason     string        `json:"reason,omitempty"` // why it is there
	HoldUntil  time.Time     `json:"hold_until,omitzero"`
	Weight     int64         `json:"weight"`
	WeightFrom string        `json:"weight_from,omitempty"` // scrape, probe or estimate
	Health     string        `json:"health"`
	LastScrape time.Time     `json:"last_scrape,omitzero"`
	Duration   time.Duration `json:"duration_ns"`
	LastError  string        `json:"last_error,omitempty"`
}

// publish shows the state of this moment to Snapshot's callers and as metrics.
func (s *Sharder) publish() {
	v := s.view()
	s.metrics.observe(v)
	s.snapshot.Store(v)
}

func (s *Sharder) view() *Snapshot {
	v := &Snapshot{Epoch: s.state.Epoch, Cycle: s.cycle, MissingShards: s.last.MissingShards}
	shards := make(map[string]*ShardView, len(s.shards))
	v.Shards = make([]ShardView, len(s.shards))
	for i, sh := range s.shards {
		v.Shards[i] = ShardView{
			Name: sh.name, URL: sh.base, Up: sh.up(), LastSeen: sh.seen, InForce: sh.acked,
			Capacity: s.cfg.Options.Capacity, Overfull: slices.Contains(s.last.Overfull, sh.name),
		}
		if sh.up() {
			v.Shards[i].HeadSeries = sh.status.HeadSeries
		}
		if sh.err != nil {
			v.Shards[i].LastError = sh.err.Error()
		}
		notStoring := sh.notStoring()
		v.Shards[i].Storing = sh.up() && notStoring == ""
		if notStoring != "" {
			v.Shards[i].LastError = notStoring
		}
		shards[sh.name] = &v.Shards[i]
	}
	v.Targets = make([]TargetView, 0, len(s.state.Targets))
	for _, id := range s.state.ids() {
		t := viewTarget(s.state.Targets[id])
		sh := shards[t.Shard]
		if sh != nil && !sh.Storing {
			why := cmp.Or(s.byName[sh.Name].notStoring(), "does not answer")
			t.Health, t.LastError = target.HealthUnknown, "shard "+sh.Name+" "+why
		}
		v.count(t)
		if sh != nil {
			sh.Targets++
			sh.Weight += t.Weight
			sh.Fill = float64(sh.Weight) / float64(sh.Capacity)
		}
		v.Targets = append(v.Targets, t)
	}
	for i := range v.Shards {
		v.Shards[i].Ghosts = max(0, v.Shards[i].HeadSeries-v.Shards[i].Weight)
	}
	v.Clusters = make([]ClusterView, 0, len(s.listings))
	for cluster, l := range s.listings {
		c := ClusterView{Cluster: cluster, Synced: l.list.Synced, Targets: len(l.list.Targets), Read: l.good, Error: l.list.Error}
		if l.err != nil {
			c.Error = l.err.Error()
		}
		v.Clusters = append(v.Clusters, c)
	}
	slices.SortFunc(v.Clusters, func(a, b ClusterView) int {
		if a.Cluster < b.Cluster {
			return -1
		}
		return 1
	})
	return v
}

func viewTarget(e *entry) TargetView {
	t := TargetView{
		Target: e.Target, Shard: e.Shard, MovingTo: e.MoveTo, State: StateAssigned, Reason: e.Reason,
		HoldUntil: e.HoldUntil, Weight: e.Weight.Series, WeightFrom: e.Weight.From, Health: target.HealthUnknown,
	}
	switch {
	case e.Shard == "":
		t.State = StateUnassigned
	case e.MoveTo != "":
		t.State = StateMoving
	}
	if st := e.status; st != nil {
		t.Health, t.LastScrape, t.Duration, t.LastError = st.Health, st.LastScrape, st.Duration, st.LastError
	}
	return t
}

func (v *Snapshot) count(t TargetView) {
	switch t.State {
	case StateUnassigned:
		v.Unassigned++
		return
	case StateMoving:
		v.Moving++
	}
	v.Assigned++
	switch t.Health {
	case target.HealthUp:
		v.Up++
	case target.HealthDown:
		v.Down++
	default:
		v.Unknown++
	}
}
