// Package supervise runs child processes: it starts them, restarts one that
// dies with growing pauses, says why it died, and stops it in good order.
//
// What must stay true: when this process ends in any way, kill -9 included, no
// child lives on; a child that dies is back within a second the first time and
// within MaxBackoff always; its output is kept, bounded, in one file.
package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of a Spec.
const (
	DefaultStopTimeout = 15 * time.Second
	MinBackoff         = 200 * time.Millisecond
	MaxBackoff         = 8 * time.Second
	// stableAfter is how long a child must live for its next death to count as
	// the first again.
	stableAfter = 30 * time.Second
)

// Spec is one child process.
type Spec struct {
	// Name is unique; it names the log file and the metrics' label.
	Name string
	// Path is the program, Args its arguments without the program's name.
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	// StopTimeout is the time between SIGTERM and SIGKILL; zero means
	// DefaultStopTimeout.
	StopTimeout time.Duration
	// Output, when set, gets every line of the child's output as well.
	Output func(line string)
}

// State of a child.
type State string

// The states that a child passes through.
const (
	StateStarting State = "starting" // not started yet
	StateRunning  State = "running"
	StateBackoff  State = "backoff" // died, waiting for its next start
	StateStopped  State = "stopped"
)

// Child is what is known of one child process.
type Child struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	Since    time.Time `json:"since"`
	// LastExit says how the child ended the last time, with the last line of
	// its output; empty when it never did.
	LastExit string `json:"last_exit,omitempty"`
	LogFile  string `json:"log_file"`
}

// Config is what New needs.
type Config struct {
	// LogDir holds <name>.log of every child.
	LogDir     string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Supervisor runs children. Its methods may be called by many goroutines.
type Supervisor struct {
	logDir   string
	log      *slog.Logger
	restarts *prometheus.CounterVec
	up       *prometheus.GaugeVec
	starts   chan start

	mu       sync.Mutex // guards children and order
	children map[string]Child
	order    []string
}

type start struct {
	cmd  *exec.Cmd
	done chan<- error
}

// New returns a Supervisor that is ready to run children.
func New(config Config) *Supervisor {
	s := &Supervisor{
		logDir: config.LogDir,
		log:    config.Logger,
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_supervise_child_restarts_total",
			Help: "Restarts of a child process that had died.",
		}, []string{"child"}),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleetwatch_supervise_child_running",
			Help: "1 while the child process runs.",
		}, []string{"child"}),
		starts:   make(chan start),
		children: map[string]Child{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if config.Registerer != nil {
		config.Registerer.MustRegister(s.restarts, s.up)
	}
	return s
}

// Serve starts processes for Run until ctx ends. The kernel sends a child its
// parent-death signal when the thread that started it ends, not the process,
// so that one goroutine, bound to its thread, has to start them all and must
// outlive them: stop Serve after every Run has returned.
func (s *Supervisor) Serve(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-s.starts:
			r.done <- r.cmd.Start()
		}
	}
}

// Run keeps one child running until ctx ends, then stops it: SIGTERM, and
// SIGKILL after the spec's StopTimeout. It returns an error only when the
// child's log file cannot be written.
func (s *Supervisor) Run(ctx context.Context, spec Spec) error {
	out, err := newOutput(s.logDir, spec)
	if err != nil {
		return err
	}
	defer out.Close()
	s.update(spec.Name, func(c *Child) { c.State, c.LogFile = StateStarting, out.path })
	defer s.update(spec.Name, func(c *Child) { c.State, c.PID = StateStopped, 0 })
	var backoff time.Duration
	for {
		began := time.Now()
		err := s.runOnce(ctx, spec, out)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > stableAfter {
			backoff = 0
		}
		backoff = min(max(2*backoff, MinBackoff), MaxBackoff)
		reason := exitReason(err, out.lastLine())
		s.log.Warn("child process ended", "child", spec.Name, "reason", reason, "restart_in", backoff, "log", out.path)
		s.restarts.WithLabelValues(spec.Name).Inc()
		s.update(spec.Name, func(c *Child) {
			c.State, c.PID, c.LastExit, c.Restarts = StateBackoff, 0, reason, c.Restarts+1
		})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
	}
}

// runOnce starts the child and waits for its end, or stops it when ctx ends.
func (s *Supervisor) runOnce(ctx context.Context, spec Spec, out *output) error {
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:noctx // stopped in order below, not killed by a context
	cmd.Env = append(cmd.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	// A process group of its own keeps a terminal's Ctrl-C away from the
	// children, so that the parent can stop them one after another.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done := make(chan error, 1)
	select {
	case s.starts <- start{cmd, done}:
	case <-ctx.Done():
		return nil
	}
	if err := <-done; err != nil {
		return fmt.Errorf("start %s: %w", spec.Path, err)
	}
	s.up.WithLabelValues(spec.Name).Set(1)
	defer s.up.WithLabelValues(spec.Name).Set(0)
	s.update(spec.Name, func(c *Child) { c.State, c.PID, c.Since = StateRunning, cmd.Process.Pid, time.Now() })

	exited := make(chan struct{})
	var exit error // written before exited is closed
	go func() { exit = cmd.Wait(); close(exited) }()
	select {
	case <-exited:
		return exit
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has just ended
	timeout := spec.StopTimeout
	if timeout == 0 {
		timeout = DefaultStopTimeout
	}
	select {
	case <-exited:
	case <-time.After(timeout):
		s.log.Warn("child process did not stop in time and is killed", "child", spec.Name, "timeout", timeout)
		_ = cmd.Process.Kill()
		<-exited
	}
	return nil
}

// Children returns all children in the order in which they were first run.
func (s *Supervisor) Children() []Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	children := make([]Child, 0, len(s.order))
	for _, name := range s.order {
		children = append(children, s.children[name])
	}
	return children
}

func (s *Supervisor) update(name string, change func(*Child)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.children[name]
	if !known {
		s.order = append(s.order, name)
		c = Child{Name: name, Since: time.Now()}
	}
	change(&c)
	s.children[name] = c
}

func exitReason(err error, lastLine string) string {
	reason := "exit code 0"
	if err != nil {
		reason = err.Error()
	}
	if lastLine != "" {
		reason += ": " + lastLine
	}
	return reason
}
