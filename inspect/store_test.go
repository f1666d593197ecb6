package inspect_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/inspect"
)

func reportAt(t *testing.T, offset time.Duration) *inspect.Report {
	t.Helper()
	snap := quotaCluster("a")
	snap.Started, snap.Finished = now.Add(offset), now.Add(offset+time.Second)
	return judge(t, nil, snap)
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inspections")
	store, err := inspect.NewStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := store.Latest(); ok {
		t.Error("an empty store has a latest report")
	}
	for i := range 60 {
		if err := store.Save(reportAt(t, time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	newest := reportAt(t, 59*time.Minute)
	if err := store.Save(newest); err != nil { // again: replaces itself
		t.Fatal(err)
	}
	again, err := inspect.NewStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := again.List()
	if diff := cmp.Diff(store.List(), list); diff != "" || len(list) != 50 {
		t.Errorf("after a restart: %d reports\n%s", len(list), diff)
	}
	if files, _ := os.ReadDir(dir); len(files) != 50 {
		t.Errorf("%d files are left", len(files))
	}
	latest, _ := again.Latest()
	if latest.ID != newest.ID || latest.Verdict != inspect.NoGo || latest.Clusters["a"] != inspect.NoGo {
		t.Errorf("latest is %+v", latest)
	}
	got, err := again.Get(newest.ID)
	if err != nil || got.Verdict != newest.Verdict || len(got.Clusters[0].Results) != len(newest.Clusters[0].Results) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, id := range []string{"20200101T000000.000Z", "../../etc/passwd", ""} {
		if _, err := again.Get(id); !errors.Is(err, inspect.ErrNoReport) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestStoreLeavesBadFilesAlone(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "20260101T000000.000Z.json")
	if err := os.WriteFile(bad, []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := inspect.NewStore(dir, nil)
	if err != nil || len(store.List()) != 0 {
		t.Errorf("%v, %v", store, err)
	}
	if _, err := os.Stat(bad); err != nil {
		t.Errorf("the bad file: %v", err)
	}
	if _, err := inspect.NewStore(filepath.Join(bad, "x"), nil); err == nil {
		t.Error("a store in a file")
	}
}
