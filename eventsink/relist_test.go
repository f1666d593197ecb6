package eventsink_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// TestLostRecordsAreListedAgain has the journal lose everything while the
// watch runs and answer with ErrRelist: what the API server has comes again.
func TestLostRecordsAreListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		api.put("old", object("old", 3))
		s, stop := start(t, api, m)
		defer stop()
		wait(2 * time.Second)
		m.mu.Lock()
		clear(m.records)
		clear(m.positions)
		clear(m.seen)
		m.order = nil
		lost := false
		m.fail = func() (error, bool) {
			if lost {
				return nil, false
			}
			lost = true
			return record.ErrRelist, true
		}
		m.mu.Unlock()
		api.put("new", object("new", 2))
		wait(5 * time.Second)
		got := sums(t, m)
		if len(got) != 2 || got["old"] != 3 || got["new"] != 2 {
			t.Errorf("%v", got)
		}
		if st := s.State()[0]; !st.Connected || st.LastError != "" {
			t.Errorf("%+v", st)
		}
	})
}
