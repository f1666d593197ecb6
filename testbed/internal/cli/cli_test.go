package cli_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/cli"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = cli.Run(args, &out, &err)
	return code, out.String(), err.String()
}

// Bad input ends with code 1 and one line that names the thing.
func TestBadInput(t *testing.T) {
	empty := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"nonsense"}, "nonsense"},
		{"unknown flag", []string{"up", "--nonsense"}, "--nonsense"},
		{"argument too many", []string{"status", "x"}, "x"},
		{"too many clusters", []string{"up", "--dir", empty, "--clusters", "99"}, "--clusters"},
		{"missing program", []string{"up", "--dir", empty, "--bin-dir", empty}, "--bin-dir"},
		{"status of nothing", []string{"status", "--dir", empty}, "testbed up"},
		{"down of nothing", []string{"down", "--dir", empty}, "testbed up"},
		{"fault in nothing", []string{"fault", "inject", "crash-loop", "--dir", empty}, "testbed up"},
		{"unknown fault", []string{"fault", "clear", "nonsense", "--dir", empty}, "scheduler-down"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := run(tc.args...)
			line := strings.TrimSuffix(stderr, "\n")
			if code != 1 || !strings.Contains(line, tc.want) || strings.Contains(line, "\n") {
				t.Errorf("exit code %d, want one line about %q, got:\n%s", code, tc.want, stderr)
			}
		})
	}
}

// What a person runs has examples, and shows no flag that a linked library
// registered for programs of its own.
func TestHelp(t *testing.T) {
	pflag.CommandLine.Bool("leaked-by-a-library", false, "not ours")
	t.Cleanup(func() { pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) })
	for _, command := range []string{"up", "status", "down", "fault", "fault inject", "fault clear", "fault list", ""} {
		t.Run(command, func(t *testing.T) {
			code, help, stderr := run(append(strings.Fields(command), "--help")...)
			if code != 0 {
				t.Fatalf("exit code %d, %s", code, stderr)
			}
			if !strings.Contains(help, "Examples:\n"+strings.TrimRight("  testbed "+command, " ")) {
				t.Errorf("no example in\n%s", help)
			}
			if strings.Contains(help, "leaked") || strings.Contains(help, "version[") {
				t.Errorf("a foreign flag in\n%s", help)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	code, out, stderr := run("--version")
	if code != 0 || !strings.HasPrefix(out, "testbed ") || !strings.Contains(out, "Kubernetes v1.") || strings.Count(out, "\n") != 1 {
		t.Errorf("exit code %d, %q, %s", code, out, stderr)
	}
	if code, _, stderr := run("status", "--version"); code != 1 || !strings.Contains(stderr, "--version") {
		t.Errorf("--version of a subcommand: exit code %d, %s", code, stderr)
	}
}

func TestFaultListWithoutTestbed(t *testing.T) {
	code, stdout, stderr := run("fault", "list", "--dir", t.TempDir())
	if code != 0 || !strings.Contains(stdout, "node-heartbeat") || !strings.Contains(stdout, "crash-loop") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestStatus(t *testing.T) {
	dir := t.TempDir()
	release, err := state.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	err = state.Write(state.Status{
		PID: os.Getpid(), Started: time.Now(), Ready: true, Kubeconfig: dir + "/kubeconfig", Options: layout.Options{Dir: dir, Clusters: 1},
		Clusters: []state.Cluster{{Name: "a", Processes: []state.Process{
			{State: proc.State{Name: "kube-scheduler", Phase: proc.Held, LastExit: "signal: killed"}, Endpoint: "https://127.0.0.1:10121"},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := run("status", "--dir", dir)
	for _, want := range []string{"testbed ready", dir + "/kubeconfig", "kube-scheduler", "held", "https://127.0.0.1:10121", "signal: killed"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if _, json, _ := run("status", "--dir", dir, "-o", "json"); !strings.Contains(json, `"phase": "held"`) {
		t.Errorf("JSON is %s", json)
	}
	if code, _, stderr := run("status", "--dir", dir, "-o", "yaml"); code != 1 || !strings.Contains(stderr, "table or json") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
