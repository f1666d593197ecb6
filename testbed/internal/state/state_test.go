package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	release, err := state.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !state.Locked(dir) {
		t.Error("a locked directory does not say so")
	}
	if _, err := state.Lock(dir); err == nil || !strings.Contains(err.Error(), "testbed down") {
		t.Errorf("second lock: %v, want an error that names the way out", err)
	}
	release()
	if state.Locked(dir) {
		t.Error("a released directory is still locked")
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := state.Read(dir); !errors.Is(err, state.ErrNotRunning) {
		t.Errorf("empty directory: %v", err)
	}
	release, err := state.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := state.Status{PID: os.Getpid(), Started: time.Now().UTC(), Options: layout.Options{Dir: dir, Clusters: 1}, Clusters: []state.Cluster{{
		Name: "a", Processes: []state.Process{{State: proc.State{Name: "self", Phase: proc.Ready, PID: os.Getpid()}}},
	}}}
	if err := state.Write(want); err != nil {
		t.Fatal(err)
	}
	got, err := state.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Options != want.Options || !got.Started.Equal(want.Started) || got.Clusters[0].Processes[0].Phase != proc.Ready {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
	if rss := got.Clusters[0].Processes[0].RSS; rss < 1<<20 {
		t.Errorf("this process uses %d bytes", rss)
	}
	release()
	if _, err := state.Read(dir); !errors.Is(err, state.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
	if err := state.Down(dir, time.Second); !errors.Is(err, state.ErrNotRunning) {
		t.Errorf("stop what does not run: %v", err)
	}
}

func TestUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := state.Lock(filepath.Join(file, "dir")); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("got %v, want an error that names --dir", err)
	}
}
