package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testbed is a running testbed program.
type testbed struct {
	bin    string
	dir    string
	base   int
	cmd    *exec.Cmd
	exited chan error // carries the end of the program once
}

// process is what status says of a child.
type process struct {
	Name     string `json:"name"`
	Phase    string `json:"phase"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
}

func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TESTBED_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "testbed")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it with: make bin/testbed bin/kwok bin/kube-state-metrics bin/coredns, or set TESTBED_BIN", err)
	}
	return path
}

// start runs a testbed and returns when it says that it is ready.
func start(t *testing.T, dir string, base int) *testbed {
	t.Helper()
	b := &testbed{bin: binary(t), dir: dir, base: base, exited: make(chan error, 1)}
	// Not the test's context: a subtest ends before the program does.
	b.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), b.bin, "up", "--clusters", "1", "--nodes", "5", "--dir", dir, "--port-base", fmt.Sprint(base))
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd.Stderr = b.cmd.Stdout
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() {
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(t.Output(), lines.Text())
			if strings.HasPrefix(lines.Text(), "kubeconfig: ") {
				said = true
				ready <- true
			}
		}
		if !said {
			ready <- false
		}
		b.exited <- b.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Signal(syscall.SIGTERM)
		_ = b.wait(t)
	})
	select {
	case ok := <-ready:
		if !ok {
			t.Fatal("the testbed ended before it was ready")
		}
	case <-time.After(2 * patience):
		t.Fatalf("the testbed is not ready after %s", 2*patience)
	}
	t.Logf("ready after %s", time.Since(began).Round(100*time.Millisecond))
	return b
}

// wait waits for the end of the program and returns how it ended.
func (b *testbed) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-b.exited:
		b.exited <- err
		return err
	case <-time.After(patience):
		_ = b.cmd.Process.Kill()
		t.Fatal("the testbed does not end")
		return nil
	}
}

// exec runs the program with arguments and returns all that it printed.
func (b *testbed) exec(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), b.bin, args...).CombinedOutput()
	return string(out), err
}

// run runs a subcommand on the testbed's directory.
func (b *testbed) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return b.exec(t, append(args, "--dir", b.dir)...)
}

func (b *testbed) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.run(t, args...)
	if err != nil {
		t.Fatalf("testbed %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (b *testbed) processes(t *testing.T) []process {
	t.Helper()
	var status struct {
		Clusters []struct {
			Processes []process `json:"processes"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(b.must(t, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	return status.Clusters[0].Processes
}

func (b *testbed) process(t *testing.T, name string) process {
	t.Helper()
	for _, p := range b.processes(t) {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no process is named %s", name)
	return process{}
}
