package statefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetwatch-io/fleetwatch/sharder/internal/statefile"
)

func TestWriteReplacesAsAWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state.json")
	var got map[string]int
	if found, err := statefile.Read(path, &got); found || err != nil {
		t.Fatalf("before the first write: %v %v", found, err)
	}
	for i := range 3 {
		if err := statefile.Write(path, map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := statefile.Read(path, &got); !found || err != nil || got["n"] != 2 {
		t.Errorf("%v %v %v", got, found, err)
	}
	if err := statefile.Write(path, make(chan int)); err == nil {
		t.Error("a value that cannot be encoded was written")
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestCorruptFileIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte(`{"n": `), 0o600); err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	if _, err := statefile.Read(path, &got); !errors.Is(err, statefile.ErrCorrupt) {
		t.Fatalf("error: %v", err)
	}
	aside, err := statefile.Quarantine(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(aside); err != nil {
		t.Error(err)
	}
	if found, err := statefile.Read(path, &got); found || err != nil {
		t.Errorf("after quarantine: %v %v", found, err)
	}
}

func TestUnwritableFolderIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Write(filepath.Join(file, "state.json"), 1); err == nil {
		t.Error("no error")
	}
}

func TestSweepRemovesTemporaryFilesOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	for _, name := range []string{"state.json", "state.json.corrupt", ".state.json.123", ".state.json.9", ".other.json.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(statefile.Sweep(path), statefile.Sweep(filepath.Join(dir, "no", "such"))); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v %v", left, err)
	}
}
