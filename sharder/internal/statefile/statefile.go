// Package statefile keeps one JSON value in one file so that a crash at any
// moment leaves either the old value or the new one, never a part of it.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/internal/durable"
)

// ErrCorrupt marks a file that is there but does not hold a value.
var ErrCorrupt = errors.New("state file is corrupt")

// Write replaces the value in path, whose folder is made when it is missing.
// When it returns nil the value is on disk.
func Write(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("create the folder of %s: %w", path, err)
	}
	return durable.WriteFile(path, data, 0o600)
}

// Read fills value from path and reports whether the file was there. A file
// that cannot be decoded gives an error that wraps ErrCorrupt.
func Read(path string, value any) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(data, value); err != nil {
		return false, fmt.Errorf("read %s: %w: %w", path, ErrCorrupt, err)
	}
	return true, nil
}

// Quarantine moves a corrupt file out of the way and gives its new name.
func Quarantine(path string) (string, error) {
	aside := path + ".corrupt"
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set %s aside: %w", path, err)
	}
	return aside, nil
}

// Sweep removes what a Write of path that was killed half-way left beside it.
// Nobody may be writing path meanwhile.
func Sweep(path string) error {
	prefix := "." + filepath.Base(path) + "."
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep beside %s: %w", path, err)
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		if err := os.Remove(filepath.Join(filepath.Dir(path), entry.Name())); err != nil {
			return fmt.Errorf("sweep beside %s: %w", path, err)
		}
	}
	return nil
}
