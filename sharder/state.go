package sharder

import (
	"cmp"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// state is all that the sharder must not forget. It is written as a whole.
type state struct {
	Epoch   int64                  `json:"epoch"`
	Targets map[string]*entry      `json:"targets"` // by ID
	Pools   map[string]target.Pool `json:"pools"`   // by name
}

// entry is one target and its place.
type entry struct {
	Target target.Target `json:"target"`
	Weight weight        `json:"weight"`
	// Shard owns the target; empty while it is nowhere.
	Shard  string `json:"shard,omitempty"`
	Reason string `json:"reason,omitempty"` // why it is there
	// MoveTo is the intent of a hand-over: it is on disk before the source
	// stops, and off it once one shard owns the target again.
	MoveTo    string    `json:"move_to,omitempty"`
	HoldUntil time.Time `json:"hold_until,omitzero"`

	// running is the shard that shall scrape the target at this moment. It
	// differs from Shard only within a hand-over.
	running string
	// status is what its shard said last; nil before that.
	status *target.TargetStatus
}

func newState() *state {
	return &state{Targets: map[string]*entry{}, Pools: map[string]target.Pool{}}
}

// restored fills what is not on disk.
func (s *state) restored() {
	if s.Targets == nil {
		s.Targets = map[string]*entry{}
	}
	if s.Pools == nil {
		s.Pools = map[string]target.Pool{}
	}
	for id, e := range s.Targets {
		if e == nil {
			delete(s.Targets, id)
			continue
		}
		e.running = e.Shard
	}
}

// ids are the IDs of all targets in order: every walk that has an effect
// goes this way, never in map order.
func (s *state) ids() []string { return slices.Sorted(maps.Keys(s.Targets)) }

// merge takes one cluster's list in and reports whether anything changed. A
// list that is not known to be complete adds and updates, and removes nothing.
func (s *state) merge(list target.List) bool {
	changed := false
	for _, p := range list.Pools {
		if s.Pools[p.Name] != p {
			s.Pools[p.Name] = p
			changed = true
		}
	}
	listed := make(map[string]bool, len(list.Targets))
	for _, t := range list.Targets {
		if t.Cluster != list.Cluster || t.ID == "" {
			continue // a collector speaks for its own cluster only
		}
		listed[t.ID] = true
		switch e := s.Targets[t.ID]; {
		case e == nil:
			s.Targets[t.ID] = &entry{Target: t}
			changed = true
		case e.Target.ScrapeURL != t.ScrapeURL || e.Target.Address != t.Address || e.Target.Pool != t.Pool || !maps.Equal(e.Target.Labels, t.Labels):
			e.Target = t
			changed = true
		}
	}
	if !list.Synced || list.Error != "" {
		return changed
	}
	return s.removeIf(func(e *entry) bool {
		return e.Target.Cluster == list.Cluster && !listed[e.Target.ID]
	}) || changed
}

// removeIf forgets targets that are gone for good, and pools left empty.
func (s *state) removeIf(gone func(*entry) bool) bool {
	before := len(s.Targets)
	maps.DeleteFunc(s.Targets, func(_ string, e *entry) bool { return gone(e) })
	if len(s.Targets) == before {
		return false
	}
	used := map[string]bool{}
	for _, e := range s.Targets {
		used[e.Target.Pool] = true
	}
	maps.DeleteFunc(s.Pools, func(name string, _ target.Pool) bool { return !used[name] })
	return true
}

// assignment is everything that shard shall scrape now. handedOver is picked
// from maybe, the targets that the shard may be scraping: those of them that
// live on elsewhere.
func (s *state) assignment(shard string, maybe map[string]bool) target.Assignment {
	out := target.Assignment{Epoch: s.Epoch}
	pools := map[string]bool{}
	for _, e := range s.Targets {
		if e.running == shard && shard != "" {
			out.Targets = append(out.Targets, e.Target)
			pools[e.Target.Pool] = true
		} else if maybe[e.Target.ID] {
			out.HandedOver = append(out.HandedOver, e.Target.ID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if p, ok := s.Pools[name]; ok {
			out.Pools = append(out.Pools, p)
		}
	}
	slices.SortFunc(out.Targets, func(a, b target.Target) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(out.HandedOver)
	return out
}

// fingerprint tells whether two assignments mean the same to a shard. A
// target's ID covers its pool, endpoint and labels.
func fingerprint(a target.Assignment) uint64 {
	h := fnv.New64a()
	for _, p := range a.Pools {
		_, _ = io.WriteString(h, p.Name+"\x00"+p.Config+"\x00") // never fails
	}
	for _, t := range a.Targets {
		_, _ = io.WriteString(h, t.ID+"\x00"+t.ScrapeURL+"\x00")
	}
	return h.Sum64()
}
