package eventsink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fleetwatch-io/fleetwatch/eventsink"
	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is an Event of the legacy recorder after its n-th occurrence.
func object(uid string, n int) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"default","uid":%q,"creationTimestamp":"2026-11-30T10:00:00Z"},
		"involvedObject":{"kind":"Pod","name":"web-1","namespace":"default"},"reason":"BackOff","message":"Back-off","type":"Warning",
		"firstTimestamp":"2026-11-30T10:00:00Z","lastTimestamp":%q,"count":%d}`,
		uid, time.Date(2026, 11, 30, 10, 0, n, 0, time.UTC).Format(time.RFC3339), n)
}

// start runs a sink of one cluster until the returned stop is called.
func start(t *testing.T, api *fakeAPI, j eventsink.Journal) (*eventsink.Sink, func()) {
	t.Helper()
	s, err := eventsink.New(eventsink.Config{Clusters: []eventsink.Cluster{{Name: "a", REST: api.config()}}, Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return s, func() { cancel(); <-done }
}

// wait lets virtual time pass and everything settle.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sums adds up the occurrences of each Event, and fails on a double.
func sums(t *testing.T, m *memory) map[string]int {
	t.Helper()
	out := map[string]int{}
	versions := map[string]bool{}
	for _, r := range m.all() {
		if r.Kind == record.KindEvent {
			out[r.Event.UID] += int(r.Occurrences)
		}
		if k := r.Event.UID + "@" + r.Event.ResourceVersion; r.Kind == record.KindEvent && versions[k] {
			t.Errorf("two records of %s", k)
		} else {
			versions[k] = true
		}
	}
	return out
}

func TestOncePerOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		api.put("x", object("u1", 2)) // before the start
		s, stop := start(t, api, m)
		wait(time.Second)
		for n := 3; n <= 5; n++ {
			api.put("x", object("u1", n))
			wait(time.Second)
		}
		api.put("x", object("u1", 8))  // a jump
		api.put("y", object("u2", 1))  // another
		api.put("y", object("u2", 1))  // only its version changed
		api.put("y2", object("u3", 1)) // gone before its TTL
		api.remove("y2")
		wait(time.Second)
		if got := fmt.Sprint(sums(t, m)); got != "map[u1:8 u2:1 u3:1]" {
			t.Error(got)
		}
		var occurrences []int64
		for _, r := range m.all() {
			if r.Event.UID == "u1" {
				occurrences = append(occurrences, r.Occurrences)
			}
		}
		if fmt.Sprint(occurrences) != "[2 1 1 1 3]" {
			t.Error(occurrences)
		}
		st := s.State()[0]
		if !st.Connected || st.Phase != eventsink.PhaseWatching || st.Records != 7 || st.LastError != "" || st.Lag > 250*time.Millisecond {
			t.Errorf("%+v", st)
		}
		stop()

		// A restart: nothing doubled, what happened meanwhile is caught up.
		api.put("x", object("u1", 9))
		_, stop = start(t, api, m)
		wait(time.Second)
		stop()
		if got := fmt.Sprint(sums(t, m)); got != "map[u1:9 u2:1 u3:1]" || api.count("limit=") != 1 {
			t.Error(got, api.requests)
		}
	})
}

func TestDurableWithinBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		_, stop := start(t, api, m)
		defer stop()
		wait(time.Second)
		api.put("x", object("u1", 1))
		wait(250 * time.Millisecond)
		if len(m.all()) != 1 {
			t.Error("not durable after 250 ms")
		}
	})
}

// TestFaults lets the world change while a fault lasts; afterwards every
// occurrence that still lives in the API server is there once.
func TestFaults(t *testing.T) {
	expired := func(where string) func(*http.Request) *reply {
		n := 0
		return func(req *http.Request) *reply {
			if n++; n <= 2 && strings.Contains(req.URL.RawQuery, where) {
				return &reply{http.StatusGone, status(410, "Expired", "")}
			}
			return nil
		}
	}
	failing := func(code int) func(*http.Request) *reply {
		n := 0
		return func(*http.Request) *reply {
			if n++; n <= 9 {
				return &reply{code, status(code, "X", "")}
			}
			return nil
		}
	}
	for name, fault := range map[string]func(*fakeAPI){
		"410 at the start of the watch": func(a *fakeAPI) { a.compact(); a.inject("", true) },
		"410 inside the stream": func(a *fakeAPI) {
			a.inject(`{"type":"ERROR","object":`+status(410, "Expired", "")+"}\n", true)
			a.compact()
		},
		"410 and then failing lists": func(a *fakeAPI) { a.compact(); a.setFault(failing(500)); a.inject("", true) },
		"410 on the list too":        func(a *fakeAPI) { a.compact(); a.setFault(expired("limit=")); a.inject("", true) },
		"other ERROR":                func(a *fakeAPI) { a.inject(`{"type":"ERROR","object":`+status(500, "X", "")+"}\n", true) },
		"cut in the middle":          func(a *fakeAPI) { a.inject(`{"type":"ADDED","object":{"meta`, true) },
		"garbage":                    func(a *fakeAPI) { a.inject("<html>login</html>", true) },
		"unknown type":               func(a *fakeAPI) { a.inject(`{"type":"SHRUG","object":{}}`+"\n", true) },
		"undecodable event":          func(a *fakeAPI) { a.inject(`{"type":"ADDED","object":{"metadata":7}}`+"\n", false) },
		"clean end":                  func(a *fakeAPI) { a.inject("", true) },
		"forbidden for a while":      func(a *fakeAPI) { a.setFault(failing(403)); a.inject("", true) },
		"throttled for a while":      func(a *fakeAPI) { a.setFault(failing(429)); a.inject("", true) },
		"login page for a while": func(a *fakeAPI) {
			n := 0
			a.setFault(func(*http.Request) *reply {
				if n++; n <= 5 {
					return &reply{http.StatusOK, "<html>"}
				}
				return nil
			})
			a.compact()
			a.inject("", true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, m := newFakeAPI(), newMemory()
				many := 10
				if strings.Contains(name, "list") {
					many = 1200 // three pages
				}
				for i := range many {
					api.put(fmt.Sprintf("old-%04d", i), object(fmt.Sprintf("old-%d", i), 1))
				}
				s, stop := start(t, api, m)
				defer stop()
				wait(2 * time.Second)
				api.put("x", object("x", 3))
				wait(50 * time.Millisecond) // still in its batch
				fault(api)
				api.put("x", object("x", 4))
				api.put("y", object("y", 2))
				wait(5 * time.Minute)
				api.put("x", object("x", 7))
				wait(time.Second)
				got := sums(t, m)
				if len(got) != many+2 || got["x"] != 7 || got["y"] != 2 || got["old-7"] != 1 {
					t.Errorf("%d events, x %d, y %d", len(got), got["x"], got["y"])
				}
				if st := s.State()[0]; !st.Connected || st.LastError != "" {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestExpiredInTheMiddleOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		for i := range 2000 {
			api.put(fmt.Sprintf("old-%04d", i), object(fmt.Sprintf("old-%d", i), 1))
		}
		pages := 0
		api.fault = func(req *http.Request) *reply {
			if strings.Contains(req.URL.RawQuery, "continue=") {
				if pages++; pages == 2 {
					clear(api.snapshots) // compacted, though watches from here still work
				}
			}
			return nil
		}
		_, stop := start(t, api, m)
		defer stop()
		wait(5 * time.Second)
		if got := len(sums(t, m)); got != 2000 || api.count("watch") != 1 {
			t.Errorf("%d events; %q", got, api.requests)
		}
	})
}

func TestStallReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		_, stop := start(t, api, m)
		defer stop()
		wait(time.Second)
		// From now on the stream is deaf: its connection died silently.
		api.mu.Lock()
		api.streams = map[*stream]bool{}
		api.mu.Unlock()
		api.put("x", object("x", 1))
		wait(2*time.Minute + time.Second)
		if got := sums(t, m)["x"]; got != 1 || api.count("watch=") != 2 {
			t.Errorf("x %d, %q", got, api.requests)
		}
	})
}

func TestBookmarksKeepTheWatchAndMoveThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		_, stop := start(t, api, m)
		defer stop()
		wait(time.Second)
		for range 5 {
			api.inject(`{"type":"BOOKMARK","object":{"kind":"Event","metadata":{"resourceVersion":"777"}}}`+"\n", false)
			wait(time.Minute)
		}
		if p, _, _ := m.Position(t.Context(), "a"); p.ResourceVersion != "777" || time.Since(p.At) > 2*time.Minute || api.count("watch=") != 1 {
			t.Errorf("%+v, %q", p, api.requests)
		}
	})
}

func TestSlowAnswerIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		s, stop := start(t, hung{api}.api(), m)
		defer stop()
		wait(5 * time.Minute)
		if st := s.State()[0]; st.Connected || !strings.Contains(st.LastError, "api.test") {
			t.Errorf("%+v", st)
		}
	})
}

// hung answers lists and never answers watches.
type hung struct{ *fakeAPI }

func (h hung) api() *fakeAPI {
	h.fault = func(req *http.Request) *reply {
		if !strings.Contains(req.URL.RawQuery, "watch=") {
			return nil
		}
		h.mu.Unlock()
		<-req.Context().Done()
		h.mu.Lock()
		return &reply{http.StatusServiceUnavailable, ""}
	}
	return h.fakeAPI
}

func TestJournalTrouble(t *testing.T) {
	for _, half := range []bool{false, true} {
		t.Run(fmt.Sprintf("records durable %v", half), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, m := newFakeAPI(), newMemory()
				s, stop := start(t, api, m)
				defer stop()
				wait(time.Second)
				m.mu.Lock()
				m.fail = func() (error, bool) { return errDisk, half }
				m.mu.Unlock()
				for n := 1; n <= 5; n++ {
					api.put("x", object("x", n))
					wait(10 * time.Second)
				}
				if st := s.State()[0]; !strings.Contains(st.LastError, "disk is full") {
					t.Errorf("%+v", st)
				}
				api.compact() // away for too long: the versions between are gone
				m.mu.Lock()
				m.fail = nil
				m.mu.Unlock()
				api.put("x", object("x", 6))
				wait(time.Minute)
				if got := sums(t, m)["x"]; got != 6 {
					t.Errorf("x %d, want 6", got)
				}
			})
		})
	}
}

func TestGapRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, m := newFakeAPI(), newMemory()
		_, stop := start(t, api, m)
		wait(time.Second)
		stop()
		wait(30 * time.Minute)
		api.compact()
		_, stop = start(t, api, m) // away for less than the TTL: no gap
		wait(time.Minute)
		stop()
		if n := len(m.all()); n != 0 {
			t.Fatalf("%d records", n)
		}
		left := m.positions["a"].At
		wait(3 * time.Hour)
		api.compact()
		m.fail = func() (error, bool) { m.fail = nil; return errDisk, true } // and once more
		s, stop := start(t, api, m)
		wait(time.Minute)
		stop()
		all := m.all()
		if len(all) != 1 || all[0].Kind != record.KindGap || !all[0].Time.Equal(left) || !strings.Contains(all[0].Message, "away for 3h") {
			t.Errorf("%+v", all)
		}
		if got := s.State()[0].Gaps; got != 1 {
			t.Errorf("%d gaps", got)
		}
	})
}

// TestChaos throws everything at once, in many orders.
func TestChaos(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				api, m := newFakeAPI(), newMemory()
				_, stop := start(t, api, m)
				counts := make([]int, 30)
				for range 300 {
					i := rnd.IntN(len(counts))
					counts[i] += 1 + rnd.IntN(3)*rnd.IntN(2)
					api.put(fmt.Sprint(i), object(fmt.Sprint(i), counts[i]))
					switch rnd.IntN(40) {
					case 0:
						api.compact()
					case 1:
						api.inject(`{"type":"MODI`, true)
					case 2:
						api.inject("nonsense", true)
					case 3:
						n := rnd.IntN(4)
						api.setFault(func(*http.Request) *reply {
							if n--; n >= 0 {
								return &reply{500 + n, ""}
							}
							return nil
						})
					case 4:
						n, half := rnd.IntN(4), rnd.IntN(2) == 0
						m.mu.Lock()
						m.fail = func() (error, bool) {
							if n--; n >= 0 {
								return errDisk, half
							}
							return nil, false
						}
						m.mu.Unlock()
					case 5:
						stop()
						_, stop = start(t, api, m)
					}
					wait(time.Duration(rnd.IntN(900)) * time.Millisecond)
				}
				wait(2 * time.Minute)
				stop()
				got := sums(t, m)
				for i, n := range counts {
					if got[fmt.Sprint(i)] != n {
						t.Errorf("event %d: %d occurrences stored, %d happened", i, got[fmt.Sprint(i)], n)
					}
				}
			})
		})
	}
}

func TestClustersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad, m := newFakeAPI(), newFakeAPI(), newMemory()
		hung{bad}.api()
		reg := prometheus.NewRegistry()
		s, err := eventsink.New(eventsink.Config{
			Clusters: []eventsink.Cluster{{Name: "good", REST: good.config()}, {Name: "bad", REST: bad.config()}},
			Journal:  m, Registerer: reg,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		wait(time.Second)
		good.put("x", object("x", 1))
		wait(250 * time.Millisecond)
		if len(m.all()) != 1 {
			t.Error("the good cluster waits for the bad one")
		}
		states := s.State()
		if states[0].Cluster != "bad" || states[0].Connected || !states[1].Connected {
			t.Errorf("%+v", states)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestForbiddenSaysWhatToGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.setFault(func(*http.Request) *reply { return &reply{403, status(403, "Forbidden", "")} })
		s, stop := start(t, api, newMemory())
		defer stop()
		wait(time.Minute)
		st := s.State()[0]
		if st.Connected || !strings.Contains(st.LastError, "grant list and watch on events") || strings.Contains(st.LastError, "\n") {
			t.Errorf("%+v", st)
		}
		if n := api.count(""); n > 20 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	api := newFakeAPI()
	for name, cfg := range map[string]eventsink.Config{
		"no journal": {},
		"no name":    {Journal: newMemory(), Clusters: []eventsink.Cluster{{REST: api.config()}}},
		"no client":  {Journal: newMemory(), Clusters: []eventsink.Cluster{{Name: "a"}}},
		"twice":      {Journal: newMemory(), Clusters: []eventsink.Cluster{{Name: "a", REST: api.config()}, {Name: "a", REST: api.config()}}},
		"bad TTL":    {Journal: newMemory(), EventTTL: -1},
	} {
		if _, err := eventsink.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
