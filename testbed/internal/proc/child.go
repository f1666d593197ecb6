package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Phase is where a child stands.
type Phase string

// The phases of a child.
const (
	Waiting Phase = "waiting" // not started yet, or waiting to be restarted
	Running Phase = "running" // started, not ready (any more)
	Ready   Phase = "ready"
	Held    Phase = "held" // kept down by a fault
	Stopped Phase = "stopped"
)

// State is what is known of a child at one moment.
type State struct {
	Name     string    `json:"name"`
	Phase    Phase     `json:"phase"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	Started  time.Time `json:"started,omitzero"`
	LastExit string    `json:"last_exit,omitempty"`
	ExitCode int       `json:"exit_code,omitempty"`
	ExitedAt time.Time `json:"exited_at,omitzero"`
}

// Spec describes a child.
type Spec struct {
	Name string
	Path string
	Args []string
	Env  []string // added to the testbed's own
	Log  string   // file that takes stdout and stderr
	// Before, if set, runs before every start.
	Before func(context.Context) error
	// Probe says whether the child is ready. It is called again and again.
	Probe func(context.Context) error
	// Hold is a file that keeps the child down while it exists.
	Hold string
	// Grace is how long the child may take to end after SIGTERM.
	Grace time.Duration
}

const (
	pollStarting  = 100 * time.Millisecond
	pollReady     = 2 * time.Second
	pollHold      = 250 * time.Millisecond
	probeTimeout  = 3 * time.Second
	probeFailures = 3 // in a row make a ready child unready, as a kubelet's probe
	stable        = 30 * time.Second
	firstBackoff  = time.Second
	maxBackoff    = 20 * time.Second
	maxLog        = 32 << 20
)

// Child keeps one process running.
type Child struct {
	spec    Spec
	spawner *Spawner
	changed func(State)

	mu    sync.Mutex // guards state
	state State
}

// NewChild prepares a child; changed is called after every change of state,
// from the goroutine of Run, and must not block for long.
func NewChild(spawner *Spawner, spec Spec, changed func(State)) *Child {
	return &Child{spec: spec, spawner: spawner, changed: changed, state: State{Name: spec.Name, Phase: Waiting}}
}

// State returns the present state.
func (c *Child) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Spec returns what the child was made from.
func (c *Child) Spec() Spec { return c.spec }

func (c *Child) update(f func(*State)) {
	c.mu.Lock()
	before := c.state
	f(&c.state)
	after := c.state
	c.mu.Unlock()
	if before != after && c.changed != nil {
		c.changed(after)
	}
}

// Run starts the process and restarts it until ctx ends; then it stops the
// process and returns once it is gone.
func (c *Child) Run(ctx context.Context) error {
	defer c.update(func(s *State) { s.Phase, s.PID = Stopped, 0 })
	backoff := firstBackoff
	for ctx.Err() == nil {
		if err := c.waitWhileHeld(ctx); err != nil {
			return nil
		}
		began := time.Now()
		err := c.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errHeld) {
			backoff = firstBackoff
			continue
		}
		if time.Since(began) > stable {
			backoff = firstBackoff
		}
		c.update(func(s *State) { s.Phase, s.PID, s.LastExit = Waiting, 0, err.Error() })
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return nil
		}
		backoff = min(2*backoff, maxBackoff)
		c.update(func(s *State) { s.Restarts++ })
	}
	return nil
}

var errHeld = errors.New("held down by a fault")

func (c *Child) held() bool {
	if c.spec.Hold == "" {
		return false
	}
	_, err := os.Stat(c.spec.Hold)
	return err == nil
}

func (c *Child) waitWhileHeld(ctx context.Context) error {
	if !c.held() {
		return nil
	}
	c.update(func(s *State) { s.Phase, s.PID = Held, 0 })
	tick := time.NewTicker(pollHold)
	defer tick.Stop()
	for c.held() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.update(func(s *State) { s.Phase = Waiting; s.Restarts++ })
	return nil
}

// runOnce runs the process once and says why it ended; it never returns nil
// except when ctx has ended.
func (c *Child) runOnce(ctx context.Context) error {
	if c.spec.Before != nil {
		if err := c.spec.Before(ctx); err != nil {
			return fmt.Errorf("prepare start: %w", err)
		}
	}
	out, err := openLog(c.spec.Log)
	if err != nil {
		return err
	}
	defer out.Close()
	// The end of ctx is answered below, politely; it must not kill at once.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.spec.Path, c.spec.Args...)
	cmd.Env = append(os.Environ(), c.spec.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := c.spawner.Start(cmd); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	c.update(func(s *State) { s.Phase, s.PID, s.Started = Running, cmd.Process.Pid, time.Now() })
	exited := make(chan exit, 1)
	go func() { exited <- exit{cmd.Wait()} }()

	probeCtx, stopProbe := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() { c.probe(probeCtx) })
	defer func() { stopProbe(); probes.Wait() }()

	hold := time.NewTicker(pollHold)
	defer hold.Stop()
	for {
		select {
		case end := <-exited:
			c.ended(end)
			return end.reason()
		case <-hold.C:
			if c.held() {
				_ = cmd.Process.Kill()
				c.ended(<-exited)
				return errHeld
			}
		case <-ctx.Done():
			c.terminate(cmd, exited)
			return nil
		}
	}
}

// exit is how a process ended.
type exit struct{ err error }

// reason is never nil: a child that ends by itself has failed its purpose.
func (e exit) reason() error {
	if e.err == nil {
		return errors.New("exit status 0")
	}
	return e.err
}

// code is the exit code as a shell tells it.
func (e exit) code() int {
	failure, ok := errors.AsType[*exec.ExitError](e.err)
	if !ok {
		return 0
	}
	if status, ok := failure.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return failure.ExitCode()
}

func (c *Child) ended(e exit) {
	c.update(func(s *State) { s.LastExit, s.ExitCode, s.ExitedAt = e.reason().Error(), e.code(), time.Now() })
}

func (c *Child) terminate(cmd *exec.Cmd, exited <-chan exit) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(c.spec.Grace):
		_ = cmd.Process.Kill()
		<-exited
	}
}

// probe follows the readiness of the process that is running now.
func (c *Child) probe(ctx context.Context) {
	if c.spec.Probe == nil {
		c.update(func(s *State) { s.Phase = Ready })
		return
	}
	failures := 0
	wait := pollStarting
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		one, cancel := context.WithTimeout(ctx, probeTimeout)
		err := c.spec.Probe(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures, wait = 0, pollReady
			c.update(func(s *State) {
				if s.Phase == Running {
					s.Phase = Ready
				}
			})
			continue
		}
		if failures++; failures >= probeFailures {
			wait = min(2*wait, pollReady/4)
			c.update(func(s *State) {
				if s.Phase == Ready {
					s.Phase = Running
				}
			})
		}
	}
}

// openLog opens a log file for appending; one that has grown large becomes
// the only old generation.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}
