package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

const deadKubeconfig = `apiVersion: v1
kind: Config
clusters:
- {name: dead, cluster: {server: "http://127.0.0.1:1"}}
contexts:
- {name: dead, context: {cluster: dead, user: nobody}}
users:
- {name: nobody, user: {}}
`

func inspectRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	code = execute(append([]string{"inspect"}, args...), &out, &errors)
	return code, out.String(), errors.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInspectBadInput: one line that names the thing, exit code 1, no report.
func TestInspectBadInput(t *testing.T) {
	kubeconfig := write(t, "config", deadKubeconfig)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown format", []string{"run", "-o", "pdf"}, "table, json, html, md"},
		{"missing kubeconfig", []string{"run", "--kubeconfig", "/does/not/exist"}, "/does/not/exist"},
		{"unknown context", []string{"run", "--kubeconfig", kubeconfig, "--cluster", "nope"}, "nope"},
		{"short timeout", []string{"run", "--kubeconfig", kubeconfig, "--timeout", "1ms"}, "--timeout"},
		{"missing snapshot", []string{"run", "--snapshot", "/does/not/exist"}, "/does/not/exist"},
		{"broken snapshot", []string{"run", "--snapshot", write(t, "s", "{")}, "read the snapshot"},
		{"snapshot and kubeconfig", []string{"run", "--snapshot", "s", "--kubeconfig", kubeconfig}, "exclude each other"},
		{"unwritable report", []string{"run", "--kubeconfig", kubeconfig, "--out", "/does/not/exist/r.html"}, "/does/not/exist"},
		{"report is a folder", []string{"run", "--kubeconfig", kubeconfig, "--out", t.TempDir()}, "is a folder"},
		{"broken waivers", []string{"run", "--kubeconfig", kubeconfig, "--waivers", write(t, "w", "waivers: [{chek: x}]")}, "chek"},
		{"unknown flag", []string{"run", "--nope"}, "--nope"},
		{"argument", []string{"run", "x"}, "x"},
		{"unknown format of checks", []string{"checks", "list", "-o", "html"}, "table or json"},
	} {
		code, stdout, stderr := inspectRun(t, test.args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, "goroutine") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %q", test.name, code, stdout, stderr, test.want)
		}
	}
}

func TestInspectDeadCluster(t *testing.T) {
	kubeconfig := write(t, "config", deadKubeconfig)
	saved := filepath.Join(t.TempDir(), "s.gz")
	code, stdout, stderr := inspectRun(t, "run", "--kubeconfig", kubeconfig, "--save", saved)
	if code != 4 || !strings.Contains(stdout, "UNKNOWN") || !strings.Contains(stdout, "connection_refused") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	if !strings.Contains(stderr, "inspecting dead") {
		t.Errorf("no progress: %q", stderr)
	}
	page := filepath.Join(t.TempDir(), "r.html")
	code, stdout, _ = inspectRun(t, "run", "--snapshot", saved, "-o", "html", "--out", page)
	if text, err := os.ReadFile(page); err != nil || code != 4 || stdout != "" || !bytes.Contains(text, []byte("replayed from a saved snapshot")) {
		t.Errorf("exit %d, %v, %q", code, err, stdout)
	}
}

// TestInspectExitCodes replays snapshots of an empty cluster in which every
// read succeeded, whole and with the reads of one thing forbidden.
func TestInspectExitCodes(t *testing.T) {
	code, stdout, _ := inspectRun(t, "run", "--snapshot", saveEmpty(t, false), "-o", "json")
	if code != 4 || !strings.Contains(stdout, `"verdict": "UNKNOWN"`) {
		t.Errorf("a cluster without metrics: exit %d", code)
	}
	code, stdout, _ = inspectRun(t, "run", "--snapshot", saveEmpty(t, true), "-o", "md")
	if code != 3 || !strings.Contains(stdout, "NO-GO") {
		t.Errorf("a full quota: exit %d\n%s", code, stdout)
	}
	if code, _, stderr := inspectRun(t, "run", "--snapshot", saveEmpty(t, true), "--cluster", "b"); code != 1 || !strings.Contains(stderr, "it holds a") {
		t.Errorf("a cluster that is not in the snapshot: exit %d, %s", code, stderr)
	}
}

func saveEmpty(t *testing.T, fullQuota bool) string {
	t.Helper()
	now := time.Now().UTC()
	snap := &snapshot.Snapshot{Cluster: "a", Started: now, Finished: now, Reads: map[snapshot.Resource]snapshot.Read{}}
	snap.Readyz = &snapshot.HealthReport{OK: true}
	snap.Livez = snap.Readyz
	for _, resource := range snapshot.AllReads() {
		snap.Reads[resource] = snapshot.Read{At: now}
	}
	if fullQuota {
		snap.Quotas = []snapshot.Quota{{Hard: map[string]float64{"pods": 1}, Used: map[string]float64{"pods": 1}}}
	}
	var packed bytes.Buffer
	if err := snapshot.Encode(&packed, now, []*snapshot.Snapshot{snap}); err != nil {
		t.Fatal(err)
	}
	return write(t, "s.gz", packed.String())
}

func TestChecksList(t *testing.T) {
	for format, want := range map[string]string{"table": "CP-08   critical   control plane", "json": `"id": "CP-08"`} {
		if code, stdout, stderr := inspectRun(t, "checks", "list", "-o", format); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: exit %d, %q", format, code, stderr)
		}
	}
}
