package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

// scribble overwrites part of a file and leaves its header.
func scribble(t *testing.T, path string, from, n int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa7}, int(n)), from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCorruptPositions scribbles over the positions, header kept, while the
// store is closed and while it is open: each time it goes on with a new file.
func TestCorruptPositions(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := open(t, embedded.Config{Dir: dir})
	for i := range 300 {
		appendAll(t, s, record.Position{Cluster: fmt.Sprintf("cluster-%03d", i), ResourceVersion: "5", At: base})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	scribble(t, path, 4096, 20_000)
	s = open(t, embedded.Config{Dir: dir})
	if _, ok, err := s.Position(t.Context(), "cluster-001"); ok || err != nil {
		t.Fatal(ok, err)
	}
	appendAll(t, s, record.Position{Cluster: "cluster-001", ResourceVersion: "7", At: base})
	if p, ok, err := s.Position(t.Context(), "cluster-001"); !ok || err != nil || p.ResourceVersion != "7" {
		t.Fatal(p, ok, err)
	}
	if st := s.State(); len(st.Quarantined) != 1 {
		t.Fatalf("%+v", st)
	}
	// While it is open: another process's checkpoint brings the damage in.
	if err := os.WriteFile(path, bytes.Repeat([]byte("rubbish "), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path+"-wal", 0); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		appendAll(t, s, record.Position{Cluster: "cluster-002", ResourceVersion: fmt.Sprint(i), At: base})
		if p, ok, err := s.Position(t.Context(), "cluster-002"); !ok || err != nil || p.ResourceVersion != fmt.Sprint(i) {
			t.Fatal(p, ok, err)
		}
	}
}

// TestLostDayIsListedAgain scribbles over the middle of today's file: the
// position is gone, one that builds on it is refused, the day is named by
// every search that touches it, and a gap record says so.
func TestLostDayIsListedAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, embedded.Config{Dir: dir})
	var list []record.Record
	for i := range 500 {
		list = append(list, event(fmt.Sprintf("e%d", i), base, 1))
	}
	position := record.Position{Cluster: "a", ResourceVersion: "5", At: base}
	appendAll(t, s, position, append(list, event("old", base.AddDate(0, 0, -1), 1))...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "2026-11-30.db")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	scribble(t, path, info.Size()/2, 20_000)

	s = open(t, embedded.Config{Dir: dir})
	if st := s.State(); len(st.Quarantined) != 1 || st.Days != 1 {
		t.Fatalf("not found at opening: %+v", st)
	}
	if _, ok, err := s.Position(t.Context(), "a"); ok || err != nil {
		t.Fatal(ok, err)
	}
	// The relist.
	if n, err := s.Append(t.Context(), list, position); n != 500 || err != nil {
		t.Fatal(n, err)
	}
	page, err := s.Search(t.Context(), store.Search{Limit: 1000})
	if err != nil || len(page.Items) != 502 || len(page.Unseen) != 1 || !strings.HasPrefix(page.Unseen[0], "2026-11-30: ") {
		t.Fatalf("%d records, unseen %v, %v", len(page.Items), page.Unseen, err)
	}
	if got := len(ids(t, s, "record:gap reason:EventsMissing cluster:a")); got != 1 {
		t.Errorf("%d gap records, want 1", got)
	}
	page, err = s.Search(t.Context(), store.Search{Limit: 1000, Until: base.Add(-12 * time.Hour)})
	if err != nil || len(page.Items) != 1 || len(page.Unseen) > 0 {
		t.Errorf("the day before: %d records, unseen %v, %v", len(page.Items), page.Unseen, err)
	}

	// Now while the watch is running, in a file that was not open yet.
	early := base.AddDate(0, 0, -2)
	if err := os.WriteFile(filepath.Join(dir, "2026-11-28.db"), bytes.Repeat([]byte("rubbish "), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	position.ResourceVersion = "6"
	n, err := s.Append(t.Context(), []record.Record{event("next", early, 1)}, position)
	if n != 1 || !errors.Is(err, record.ErrRelist) {
		t.Fatalf("appended %d, err %v", n, err)
	}
	if _, ok, err := s.Position(t.Context(), "a"); ok || err != nil {
		t.Fatal(ok, err)
	}
	appendAll(t, s, position, list...)
	if p, ok, err := s.Position(t.Context(), "a"); !ok || err != nil || p.ResourceVersion != "6" {
		t.Fatal(p, ok, err)
	}
	if got := len(ids(t, s, "NOT record:gap")); got != 502 {
		t.Errorf("%d records, want 502", got)
	}
}

// TestDaysToComeAreRemoved keeps a day that is still to come no longer than
// any other, and gives it up first when there is too much.
func TestDaysToComeAreRemoved(t *testing.T) {
	now := base
	dir := t.TempDir()
	s := open(t, embedded.Config{Dir: dir, MaxAge: 48 * time.Hour, Now: func() time.Time { return now }})
	appendAll(t, s, record.Position{}, event("x", base, 1), event("ahead", base.AddDate(0, 0, 1), 1), event("liar", base.AddDate(70, 0, 0), 1))
	written := base.Add(-47 * time.Hour)
	for _, f := range []string{"2096-11-30.db", "2096-11-30.db-wal"} {
		if err := os.Chtimes(filepath.Join(dir, f), written, written); err != nil {
			t.Fatal(err)
		}
	}
	if s.Retain(); s.State().Days != 3 {
		t.Fatalf("%+v", s.State())
	}
	now = now.Add(2 * time.Hour)
	if s.Retain(); s.State().Newest != "2026-12-01" || s.State().Days != 2 {
		t.Errorf("%+v", s.State())
	}
	bounded := open(t, embedded.Config{MaxBytes: 1, Now: func() time.Time { return now }})
	appendAll(t, bounded, record.Position{}, event("x", base, 1), event("liar", base.AddDate(70, 0, 0), 1))
	if bounded.Retain(); bounded.State().Newest != "2026-11-30" || bounded.State().Days != 1 {
		t.Errorf("%+v", bounded.State())
	}
}
