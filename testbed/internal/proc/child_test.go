package proc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

// follow runs a child of a shell script and hands over every state it takes.
func follow(t *testing.T, script string, change func(*proc.Spec)) (states <-chan proc.State, stop func()) {
	t.Helper()
	spec := proc.Spec{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", script}, Grace: 5 * time.Second,
		Log: filepath.Join(t.TempDir(), "logs", "child.log"), Hold: filepath.Join(t.TempDir(), "hold"),
	}
	if change != nil {
		change(&spec)
	}
	out := make(chan proc.State, 100)
	child := proc.NewChild(proc.NewSpawner(), spec, func(s proc.State) { out <- s })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := child.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return out, stop
}

// await returns the first state that satisfies want.
func await(t *testing.T, states <-chan proc.State, what string, want func(proc.State) bool) proc.State {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case s := <-states:
			if want(s) {
				return s
			}
		case <-deadline:
			t.Fatalf("child did not become %s", what)
		}
	}
}

func phase(p proc.Phase) func(proc.State) bool {
	return func(s proc.State) bool { return s.Phase == p }
}

func TestChildIsRestarted(t *testing.T) {
	states, _ := follow(t, "exit 3", nil)
	s := await(t, states, "restarted", func(s proc.State) bool { return s.Restarts == 1 })
	if s.ExitCode != 3 || s.LastExit != "exit status 3" {
		t.Errorf("exit code %d, %q", s.ExitCode, s.LastExit)
	}
}

func TestChildIsProbed(t *testing.T) {
	ok := make(chan struct{})
	states, _ := follow(t, "exec sleep 60", func(s *proc.Spec) {
		s.Probe = func(context.Context) error {
			select {
			case <-ok:
				return nil
			default:
				return errors.New("not yet")
			}
		}
	})
	s := await(t, states, "running", phase(proc.Running))
	if s.PID == 0 {
		t.Error("a running child has no pid")
	}
	close(ok)
	await(t, states, "ready", phase(proc.Ready))
}

func TestChildIsHeldDown(t *testing.T) {
	var hold string
	states, _ := follow(t, "exec sleep 60", func(s *proc.Spec) { hold = s.Hold })
	running := await(t, states, "ready", phase(proc.Ready))
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	held := await(t, states, "held", phase(proc.Held))
	if held.ExitCode != 128+int(syscall.SIGKILL) {
		t.Errorf("exit code %d, want that of a killed process", held.ExitCode)
	}
	if err := syscall.Kill(running.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process is still there: %v", err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	again := await(t, states, "ready again", phase(proc.Ready))
	if again.Restarts != 1 || again.PID == running.PID {
		t.Errorf("restarts %d, pid %d after %d", again.Restarts, again.PID, running.PID)
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	states, stop := follow(t, "trap '' TERM; echo up; while :; do sleep 1; done", func(s *proc.Spec) { s.Grace = 300 * time.Millisecond })
	s := await(t, states, "ready", phase(proc.Ready))
	stop()
	if err := syscall.Kill(s.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process outlived its supervisor: %v", err)
	}
}

func TestBeforeRunsBeforeEveryStart(t *testing.T) {
	count := 0
	states, _ := follow(t, "exit 0", func(s *proc.Spec) {
		s.Before = func(context.Context) error {
			if count++; count == 1 {
				return errors.New("no server yet")
			}
			return nil
		}
	})
	s := await(t, states, "waiting", func(s proc.State) bool { return strings.Contains(s.LastExit, "no server yet") })
	if s.PID != 0 {
		t.Error("the child was started although it could not be prepared")
	}
	await(t, states, "started", func(s proc.State) bool { return s.PID != 0 })
}
