package eventsink

import (
	"sync"
	"time"
)

// Phase is what a watcher is doing.
type Phase string

// Phases of a watcher.
const (
	PhaseStarting Phase = "starting"
	PhaseListing  Phase = "listing"
	PhaseWatching Phase = "watching"
	// PhaseWaiting is the wait before the next try.
	PhaseWaiting Phase = "waiting"
)

// State is what people should know of one cluster's watch.
type State struct {
	Cluster string `json:"cluster"`
	Phase   Phase  `json:"phase"`
	// Connected says that Events are flowing, or would if there were any.
	Connected bool `json:"connected"`
	// LastError is why it is not connected, or why nothing can be stored;
	// empty when all is well.
	LastError string    `json:"last_error,omitempty"`
	Since     time.Time `json:"since"` // of Connected
	// LastEvent is when an Event last arrived.
	LastEvent time.Time `json:"last_event,omitzero"`
	// Lag is how long the last batch took from arrival to durable.
	Lag time.Duration `json:"lag_ns"`
	// Records and Gaps count what was stored since the start.
	Records int64 `json:"records"`
	Gaps    int64 `json:"gaps"`
}

// stateBox guards a State.
type stateBox struct {
	mu sync.Mutex
	s  State
}

func (b *stateBox) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

func (b *stateBox) set(f func(*State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.s.Connected
	f(&b.s)
	if b.s.Connected != was {
		b.s.Since = time.Now()
	}
}
