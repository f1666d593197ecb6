package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockDataDir makes the data directory and takes it for this process until the
// returned file is closed; the kernel frees it when the process dies.
func lockDataDir(dir string) (*os.File, error) {
	for _, d := range []string{dir, filepath.Join(dir, "logs")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the data directory: %w; choose another with --data-dir", err)
		}
	}
	path := filepath.Join(dir, "lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w; choose another with --data-dir", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		lock.Close()
		return nil, fmt.Errorf("data directory %s is used by another fleetwatch (pid %s); stop it, or choose another with --data-dir", dir, strings.TrimSpace(string(holder)))
	}
	if err := lock.Truncate(0); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, fmt.Errorf("write %s: %w; free some space, or choose another with --data-dir", path, err)
	}
	return lock, nil
}
