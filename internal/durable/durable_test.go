package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetwatch-io/fleetwatch/internal/durable"
)

func TestWriteFileIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	for _, text := range []string{"one", "two"} {
		if err := durable.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("got %q", got)
		}
	}
	if err := durable.WriteFile(filepath.Join(dir, "no", "such"), nil, 0o640); err == nil {
		t.Error("no error for a missing folder")
	}
	if err := durable.WriteFile(os.DevNull, []byte("x"), 0o640); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s was replaced: %v", os.DevNull, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
}
