package eventsink_test

import (
	"context"
	"errors"
	"sync"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

var errDisk = errors.New("disk is full")

// memory is a journal that keeps its contract in memory, and can fail.
type memory struct {
	mu        sync.Mutex // guards below
	records   map[string]record.Record
	order     []string
	positions map[string]record.Position
	seen      map[string]record.Seen
	// fail is asked before every Append; half says that the records are
	// stored all the same, and only the position is not.
	fail func() (err error, half bool)
}

func newMemory() *memory {
	return &memory{records: map[string]record.Record{}, positions: map[string]record.Position{}, seen: map[string]record.Seen{}}
}

func (m *memory) Position(_ context.Context, cluster string) (record.Position, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.positions[cluster]
	return p, ok, nil
}

func (m *memory) Seen(_ context.Context, cluster string, events []record.EventKey) (map[string]record.Seen, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]record.Seen{}
	for _, e := range events {
		if s, ok := m.seen[cluster+"/"+e.UID]; ok {
			out[e.UID] = s
		}
	}
	return out, nil
}

func (m *memory) Append(_ context.Context, records []record.Record, p record.Position) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	half := false
	if m.fail != nil {
		if err, half = m.fail(); err != nil && !half {
			return 0, err
		}
	}
	for _, r := range records {
		if _, ok := m.records[r.ID]; ok {
			continue
		}
		m.records[r.ID] = r
		m.order = append(m.order, r.ID)
		n++
		m.seen[r.Cluster+"/"+r.Event.UID] = record.Seen{Count: r.Count, LastTime: r.LastTime, ResourceVersion: r.Event.ResourceVersion}
	}
	if half {
		return 0, err
	}
	if p.Cluster != "" {
		m.positions[p.Cluster] = p
	}
	return n, nil
}

// all returns the records in the order of their arrival.
func (m *memory) all() (list []record.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range m.order {
		list = append(list, m.records[id])
	}
	return list
}
