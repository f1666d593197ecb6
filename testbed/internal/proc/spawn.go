// Package proc runs the testbed's child processes: it starts them so that the
// kernel kills them when the testbed dies in whatever way, restarts one that
// ends by itself, and keeps one down while it is held.
package proc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Spawner starts processes from one operating-system thread. The kernel sends
// a child its parent-death signal when the thread that started it ends, not
// the process, so the thread must live as long as the process: the spawner's
// goroutine locks it and never returns.
type Spawner struct{ requests chan request }

type request struct {
	cmd  *exec.Cmd
	done chan error
}

// NewSpawner starts the thread. There is no way to stop it: one spawner serves
// a program from start to end.
func NewSpawner() *Spawner {
	s := &Spawner{requests: make(chan request)}
	go func() {
		runtime.LockOSThread()
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

// Start starts cmd in a process group of its own, so that a Ctrl-C in the
// terminal reaches the testbed alone, which then stops the children in order.
func (s *Spawner) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	r := request{cmd: cmd, done: make(chan error, 1)}
	s.requests <- r
	return <-r.done
}
