package supervise_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fleetwatch-io/fleetwatch/internal/supervise"
)

// TestMain turns the test binary into a supervising parent when asked to, so
// that a test can kill one.
func TestMain(m *testing.M) {
	if os.Getenv("SUPERVISE_PARENT") != "" {
		s := supervise.New(supervise.Config{LogDir: os.Getenv("SUPERVISE_PARENT")})
		go func() { _ = s.Serve(context.Background()) }()
		_ = s.Run(context.Background(), supervise.Spec{
			Name: "child", Path: "/bin/sh", Args: []string{"-c", "echo $$; exec sleep 1000"},
			Output: func(line string) { fmt.Println(line) },
		})
		return
	}
	// lumberjack never ends the goroutine of a closed logger: one for each child.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// run starts a supervisor with one child and returns its output lines; the
// child is stopped at the end of the test.
func run(t *testing.T, s *supervise.Supervisor, spec supervise.Spec) (lines <-chan string, stop func()) {
	t.Helper()
	out := make(chan string, 1000)
	spec.Output = func(line string) { out <- line }
	ctx, cancel := context.WithCancel(context.Background())
	serveCtx, stopServe := context.WithCancel(context.Background())
	served, done := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(serveCtx) }()
	go func() { done <- s.Run(ctx, spec) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		stopServe()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return out, stop
}

func TestChildIsRestartedAndTheReasonKept(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := supervise.New(supervise.Config{LogDir: t.TempDir(), Registerer: reg})
	lines, stop := run(t, s, supervise.Spec{Name: "child", Path: "/bin/sh", Args: []string{"-c", "echo out of cheese; exit 3"}})
	<-lines
	<-lines // it ran twice
	stop()
	child := s.Children()[0]
	if child.Restarts < 1 || !strings.Contains(child.LastExit, "exit status 3") || !strings.Contains(child.LastExit, "out of cheese") {
		t.Errorf("got %+v", child)
	}
	if child.State != supervise.StateStopped || child.PID != 0 {
		t.Errorf("after the stop: %+v", child)
	}
	log, err := os.ReadFile(child.LogFile)
	if err != nil || !strings.Contains(string(log), "out of cheese") {
		t.Errorf("log %q, %v", log, err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

func TestStopSendsTermFirst(t *testing.T) {
	s := supervise.New(supervise.Config{LogDir: t.TempDir()})
	lines, stop := run(t, s, supervise.Spec{
		Name: "child", Path: "/bin/sh",
		Args: []string{"-c", `trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.05; done`},
	})
	<-lines
	stop()
	if line := <-lines; line != "goodbye" {
		t.Errorf("got %q", line)
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	s := supervise.New(supervise.Config{LogDir: t.TempDir()})
	lines, stop := run(t, s, supervise.Spec{
		Name: "child", Path: "/bin/sh", StopTimeout: 50 * time.Millisecond,
		Args: []string{"-c", `trap '' TERM; echo $$; while :; do sleep 0.05; done`},
	})
	pid, err := strconv.Atoi(<-lines)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("child %d: %v", pid, err)
	}
}

func TestMissingProgramIsRetriedAndNamed(t *testing.T) {
	s := supervise.New(supervise.Config{LogDir: t.TempDir()})
	_, stop := run(t, s, supervise.Spec{Name: "child", Path: "/nonexistent/program"})
	waitFor(t, func() bool { c := s.Children(); return len(c) == 1 && c[0].Restarts >= 2 })
	stop()
	if c := s.Children()[0]; !strings.Contains(c.LastExit, "/nonexistent/program") {
		t.Errorf("got %+v", c)
	}
}

func TestUnwritableLogDirIsAnError(t *testing.T) {
	s := supervise.New(supervise.Config{LogDir: "/proc/nowhere"})
	err := s.Run(t.Context(), supervise.Spec{Name: "child", Path: "/bin/true"})
	if err == nil || !strings.Contains(err.Error(), "open the log of child") {
		t.Errorf("got %v", err)
	}
}

func TestKilledParentLeavesNoChild(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), "SUPERVISE_PARENT="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed: an error is what we want
	waitFor(t, func() bool { return dead(child) })
}

// dead reports whether the process is gone or a zombie that nobody reaps.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatal("not in ten seconds")
		case <-tick.C:
		}
	}
}
