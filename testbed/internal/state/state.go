// Package state is what a running testbed tells other shells through files in
// its directory: a lock that says that it runs, and a status file.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

// Status is the content of the status file.
type Status struct {
	PID        int            `json:"pid"`
	Started    time.Time      `json:"started"`
	Ready      bool           `json:"ready"`
	Kubeconfig string         `json:"kubeconfig"`
	Options    layout.Options `json:"options"`
	Clusters   []Cluster      `json:"clusters"`
}

// Cluster is one cluster's part of a Status.
type Cluster struct {
	Name      string    `json:"name"`
	Server    string    `json:"server"`
	Ready     bool      `json:"ready"`
	Nodes     int       `json:"nodes"`
	Processes []Process `json:"processes"`
}

// Process is one child process.
type Process struct {
	proc.State
	Endpoint string `json:"endpoint"`
	Log      string `json:"log"`
	// RSS is the resident memory in bytes; it is filled in by the reader.
	RSS int64 `json:"rss_bytes,omitempty"`
}

func statusFile(dir string) string { return filepath.Join(dir, "status.json") }

// Write replaces the status file in one step.
func Write(s Status) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := statusFile(s.Options.Dir)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ErrNotRunning means that no testbed runs in the directory.
var ErrNotRunning = errors.New("no testbed is running there; start one with: testbed up --dir DIR")

// Read returns the status of the testbed that runs in dir, with the memory of
// each process; ErrNotRunning if none does. A stopped testbed's last status
// comes with ErrNotRunning.
func Read(dir string) (Status, error) {
	s, err := Last(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Status{}, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	if err != nil {
		return Status{}, err
	}
	if !Locked(dir) {
		return s, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	for i := range s.Clusters {
		for j := range s.Clusters[i].Processes {
			p := &s.Clusters[i].Processes[j]
			if p.PID != 0 {
				p.RSS = rss(p.PID)
			}
		}
	}
	return s, nil
}

// Last returns the last status written in dir, whether its testbed runs or not.
func Last(dir string) (Status, error) {
	data, err := os.ReadFile(statusFile(dir))
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(data, &s); err != nil {
		return Status{}, fmt.Errorf("read %s: %w", statusFile(dir), err)
	}
	return s, nil
}

// rss is the resident memory of a process in bytes, 0 if it is gone.
func rss(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

func lockFile(dir string) string { return filepath.Join(dir, "lock") }

// Lock makes this process the one that runs in dir. The kernel drops the lock
// when the process ends, however it ends.
func Lock(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory %s: %w; give another one with --dir", dir, err)
	}
	file, err := os.OpenFile(lockFile(dir), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("write in directory %s: %w; give another one with --dir", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("a testbed is already running in %s; stop it with: testbed down --dir %s", dir, dir)
	}
	return func() { file.Close() }, nil
}

// Locked says whether a testbed runs in dir.
func Locked(dir string) bool {
	file, err := os.Open(lockFile(dir))
	if err != nil {
		return false
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return errors.Is(err, syscall.EWOULDBLOCK)
	}
	return false
}

// Down stops the testbed that runs in dir and waits until it has gone.
func Down(dir string, patience time.Duration) error {
	s, err := Read(dir)
	if err != nil {
		return err
	}
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop testbed with pid %d: %w", s.PID, err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for Locked(dir) {
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("testbed with pid %d in %s has not ended after %s; its processes end with it: kill -9 %d", s.PID, dir, patience, s.PID)
		}
	}
	return nil
}
