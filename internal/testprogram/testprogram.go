// Package testprogram finds the built programs that tests run for real.
package testprogram

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the absolute path of a program in $FLEETWATCH_BIN_DIR, or in the
// bin folder of the repository. A missing one fails the test; it never skips it.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	dir := os.Getenv("FLEETWATCH_BIN_DIR")
	if dir == "" {
		dir = filepath.Join(root(tb), "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("this test runs the real %s: %v; run `make build` first, or set FLEETWATCH_BIN_DIR to where it is", name, err)
	}
	return path
}

// root is the folder of the main module: the nearest one above with a go.mod.
func root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}
