package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
	"github.com/fleetwatch-io/fleetwatch/internal/record/storetest"
)

var base = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, cfg embedded.Config) *embedded.Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return base }
	}
	s, err := embedded.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("FLEETWATCH_TEST_WRITER"); dir != "" {
		runWriter(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, base, func(t *testing.T) storetest.Store { return open(t, embedded.Config{}) })
}

func ids(t *testing.T, s *embedded.Store, text string) []string {
	t.Helper()
	e, err := query.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Search(t.Context(), store.Search{Query: e, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range page.Items {
		out = append(out, r.ID)
	}
	return out
}

func event(uid string, at time.Time, count int64) record.Record {
	return record.Record{
		ID: record.NewID(uid, fmt.Sprint(count)), Kind: record.KindEvent, Cluster: "a", Time: at, LastTime: at, Message: "m", Count: count,
		Occurrences: 1, Event: record.Event{UID: uid, ResourceVersion: fmt.Sprint(100 + count)},
	}
}

func appendAll(t *testing.T, s *embedded.Store, p record.Position, records ...record.Record) {
	t.Helper()
	if _, err := s.Append(t.Context(), records, p); err != nil {
		t.Fatal(err)
	}
}

func TestPositionAndSeenSurviveReopening(t *testing.T) {
	dir := t.TempDir()
	s := open(t, embedded.Config{Dir: dir})
	if _, ok, err := s.Position(t.Context(), "a"); ok || err != nil {
		t.Fatalf("ok %v, err %v in an empty store", ok, err)
	}
	want := record.Position{Cluster: "a", ResourceVersion: "77", At: base}
	appendAll(t, s, want, event("u1", base.Add(-26*time.Hour), 1), event("u1", base.Add(-25*time.Hour), 3), event("u1", base, 4), event("u2", base.Add(-25*time.Hour), 9))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, embedded.Config{Dir: dir})
	got, ok, err := s.Position(t.Context(), "a")
	if err != nil || !ok || got != want {
		t.Errorf("position %+v, %v, %v", got, ok, err)
	}
	old := base.Add(-48 * time.Hour)
	seen, err := s.Seen(t.Context(), "a", []record.EventKey{{UID: "u1", Created: old}, {UID: "u2", Created: old}, {UID: "u3", Created: old}, {UID: "u2x", Created: base}})
	if err != nil || len(seen) != 2 || seen["u1"].Count != 4 || seen["u2"].Count != 9 || seen["u1"].ResourceVersion != "104" || !seen["u1"].LastTime.Equal(base) {
		t.Errorf("seen %+v, %v", seen, err)
	}
	if seen, err = s.Seen(t.Context(), "A", []record.EventKey{{UID: "u1", Created: old}}); err != nil || len(seen) != 0 {
		t.Errorf("another cluster's event was seen: %+v, %v", seen, err)
	}
}

func TestConcurrentAppends(t *testing.T) {
	s := open(t, embedded.Config{})
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 20 {
				r := event(fmt.Sprintf("c%d-%d", c, i), base, 1)
				n, err := s.Append(t.Context(), []record.Record{r}, record.Position{Cluster: fmt.Sprint(c), ResourceVersion: fmt.Sprint(i), At: base})
				if err != nil || n != 1 {
					t.Errorf("%d records, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(ids(t, s, "")); got != 160 {
		t.Errorf("%d records, want 160", got)
	}
}

func TestCorruptDayIsMovedAside(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s := open(t, embedded.Config{Dir: dir})
	appendAll(t, s, record.Position{Cluster: "a", ResourceVersion: "5"}, event("old", base.Add(-24*time.Hour), 1), event("new", base, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2026-11-30.db", "state.db"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("rubbish "), 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	s = open(t, embedded.Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: reg})
	if _, ok, err := s.Position(t.Context(), "a"); ok || err != nil {
		t.Errorf("a position came out of a corrupt file: %v, %v", ok, err)
	}
	page, err := s.Search(t.Context(), store.Search{Limit: 10})
	if err != nil || len(page.Items) != 1 || page.Items[0].Event.UID != "old" || len(page.Unseen) != 1 || !strings.Contains(page.Unseen[0], "2026-11-30") {
		t.Fatalf("%+v, %v", page, err)
	}
	appendAll(t, s, record.Position{}, event("new", base, 2))
	if got := len(ids(t, s, "")); got != 2 {
		t.Errorf("%d records, want 2", got)
	}
	st := s.State()
	if len(st.Quarantined) != 2 || st.Days != 2 || !strings.Contains(log.String(), "corrupt") {
		t.Errorf("state %+v, log %s", st, log.String())
	}
	for _, path := range st.Quarantined {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st := open(t, embedded.Config{Dir: dir}).State(); len(st.Quarantined) != 2 {
		t.Errorf("after reopening: %+v", st)
	}
}

func TestCorruptWhileWriting(t *testing.T) {
	dir := t.TempDir()
	s := open(t, embedded.Config{Dir: dir})
	if err := os.WriteFile(filepath.Join(dir, "2026-11-30.db"), bytes.Repeat([]byte("rubbish "), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, record.Position{}, event("new", base, 1))
	if got := len(ids(t, s, "")); got != 1 || len(s.State().Quarantined) != 1 {
		t.Errorf("%d records, %+v", got, s.State())
	}
}

func TestNewerFormatIsRefusedNotTouched(t *testing.T) {
	dir := t.TempDir()
	s := open(t, embedded.Config{Dir: dir})
	appendAll(t, s, record.Position{}, event("x", base, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	setVersion(t, filepath.Join(dir, "2026-11-30.db"), 9)
	s = open(t, embedded.Config{Dir: dir})
	_, err := s.Append(t.Context(), []record.Record{event("y", base, 1)}, record.Position{})
	if err == nil || !strings.Contains(err.Error(), "newer Fleetwatch") {
		t.Errorf("err %v", err)
	}
}

func TestRetention(t *testing.T) {
	now := base
	reg := prometheus.NewRegistry()
	s := open(t, embedded.Config{MaxAge: 72 * time.Hour, Now: func() time.Time { return now }, Registerer: reg})
	for i := range 4 {
		appendAll(t, s, record.Position{}, event(fmt.Sprint(i), base.AddDate(0, 0, -i), 1))
	}
	now = base.AddDate(0, 0, 1)
	s.Retain()
	if st := s.State(); st.Oldest != "2026-11-28" || st.Days != 3 {
		t.Errorf("%+v", st)
	}
	if n, err := s.Append(t.Context(), []record.Record{event("late", base.AddDate(0, 0, -9), 1)}, record.Position{}); n != 0 || err != nil {
		t.Errorf("a record older than the retention: %d, %v", n, err)
	}
	if got := testutil.ToFloat64(counter(t, reg, "fleetwatch_recordstore_expired_records_total")); got != 1 {
		t.Errorf("expired %v", got)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestRetentionByBytesKeepsToday(t *testing.T) {
	s := open(t, embedded.Config{MaxBytes: 1})
	for i := range 3 {
		appendAll(t, s, record.Position{}, event(fmt.Sprint(i), base.AddDate(0, 0, -i), 1))
	}
	s.Retain()
	if st := s.State(); st.Days != 1 || st.Newest != "2026-11-30" {
		t.Errorf("%+v", st)
	}
	if got := len(ids(t, s, "")); got != 1 {
		t.Errorf("%d records", got)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	s := open(t, embedded.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	s := open(t, embedded.Config{})
	done := make(chan error, 1)
	go func() {
		done <- s.Follow(t.Context(), store.Search{}, func([]record.Record) error { return nil })
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("Follow ended without an error")
	}
	if _, err := s.Append(t.Context(), nil, record.Position{}); err == nil {
		t.Error("Append succeeded")
	}
}

func TestBadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]embedded.Config{
		"--data-dir":        {Dir: filepath.Join(file, "x")},
		"keep at least 24h": {Dir: t.TempDir(), MaxAge: time.Hour},
	} {
		if _, err := embedded.Open(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
