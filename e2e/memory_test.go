package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// rss is the resident memory of a process in MiB.
func rss(t *testing.T, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmRSS of process %d", pid)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1024
}

// memory checks the bar of `fleetwatch up` itself; its children have their own.
func memory(t *testing.T, i *instance) {
	const bar = 150
	used := rss(t, i.cmd.Process.Pid)
	t.Logf("fleetwatch up itself: %.0f MiB resident (bar: %d MiB)", used, bar)
	if used > bar {
		t.Errorf("fleetwatch up itself takes %.0f MiB, want at most %d", used, bar)
	}
}
