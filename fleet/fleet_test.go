package fleet_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetwatch-io/fleetwatch/fleet"
)

const twoContexts = `
apiVersion: v1
kind: Config
clusters:
- name: east
  cluster: {server: "https://east.example:6443"}
- name: west
  cluster: {server: "https://west.example:6443"}
users:
- name: admin
  user: {token: t}
contexts:
- name: Admin@West
  context: {cluster: west, user: admin}
- name: east
  context:
    cluster: east
    user: admin
    extensions:
    - name: fleetwatch.io/cluster
      extension: {environment: production}
`

func TestFromKubeconfig(t *testing.T) {
	type row struct{ ID, Alias, Environment, Server string }
	tests := []struct {
		name     string
		content  string
		contexts []string
		want     []row
		wantErr  string
	}{
		{"all contexts, sorted", twoContexts, nil, []row{
			{"admin-west", "Admin@West", "", "https://west.example:6443"},
			{"east", "east", "production", "https://east.example:6443"},
		}, ""},
		{"one context", twoContexts, []string{"east"}, []row{{"east", "east", "production", "https://east.example:6443"}}, ""},
		{"unknown context", twoContexts, []string{"nord"}, nil, `has no context "nord"; it has: Admin@West, east`},
		{"no contexts", "apiVersion: v1\nkind: Config\n", nil, nil, "has no contexts"},
		{"malformed YAML", "apiVersion: v1\n  kind: [", nil, nil, "check it with kubectl config view"},
		{"same ID twice", strings.ReplaceAll(twoContexts, "Admin@West", "EAST"), nil, nil, `give the same cluster ID "east"`},
		{"no usable name", strings.ReplaceAll(twoContexts, "Admin@West", "'@@'"), nil, nil, "has no letter or digit"},
		{"digit first", strings.ReplaceAll(twoContexts, "Admin@West", "'1st'"), []string{"1st"}, []row{{"c-1st", "1st", "", "https://west.example:6443"}}, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			file := write(t, tc.content)
			clusters, err := fleet.FromKubeconfig(file, tc.contexts)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("got error %v, want one line with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []row
			for _, c := range clusters {
				got = append(got, row{c.ID, c.Alias, c.Environment, c.Server})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFromKubeconfigFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := fleet.FromKubeconfig(missing, nil); err == nil || !strings.Contains(err.Error(), "does not exist; set KUBECONFIG or give --kubeconfig FILE") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := fleet.FromKubeconfig("", nil); err == nil || !strings.Contains(err.Error(), "set KUBECONFIG") {
		t.Errorf("no file: %v", err)
	}
	list := missing + string(filepath.ListSeparator) + write(t, twoContexts)
	clusters, err := fleet.FromKubeconfig(list, nil)
	if err != nil || len(clusters) != 2 {
		t.Errorf("list of files: %d clusters, %v", len(clusters), err)
	}
}

func TestIncompleteContextIsADegradedCluster(t *testing.T) {
	file := write(t, strings.ReplaceAll(twoContexts, "cluster: west, user", "cluster: gone, user"))
	clusters, err := fleet.FromKubeconfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = clusters[0].RESTConfig()
	if err == nil || !strings.Contains(err.Error(), `names cluster "gone", which the file lacks`) {
		t.Errorf("got %v", err)
	}
	status := fleet.Look(t.Context(), clusters[0], fleet.Status{Nodes: -1}, time.Now())
	if status.State != fleet.StateMisconfigured || status.Reason == "" {
		t.Errorf("got %+v", status)
	}
	if _, err := clusters[1].RESTConfig(); err != nil {
		t.Errorf("the other cluster: %v", err)
	}
}

// TestRegistry follows one cluster through away, there, forbidden and away.
func TestRegistry(t *testing.T) {
	nodes := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.37.2"}`))
		case nodes != http.StatusOK:
			w.WriteHeader(nodes)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden","reason":"Forbidden","code":403}`))
		default:
			if r.URL.Query().Get("limit") != "1" {
				t.Errorf("nodes are listed without limit=1: %s", r.URL)
			}
			_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","metadata":{"remainingItemCount":49},"items":[{"metadata":{"name":"n"}}]}`))
		}
	}))
	clusters, err := fleet.FromKubeconfig(write(t, strings.ReplaceAll(twoContexts, "https://east.example:6443", server.URL)), []string{"east"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	status := fleet.Look(t.Context(), clusters[0], fleet.Status{State: fleet.StatePending, Nodes: -1}, now)
	want := fleet.Status{State: fleet.StateReady, Version: "v1.37.2", Nodes: 50, Since: now, CheckedAt: now}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Fatal(diff)
	}
	nodes = http.StatusForbidden
	status = fleet.Look(t.Context(), clusters[0], status, now.Add(time.Second))
	if status.State != fleet.StateDegraded || !strings.Contains(status.Reason, "403") || status.Nodes != 50 {
		t.Fatalf("forbidden: %+v", status)
	}
	server.Close()
	status = fleet.Look(t.Context(), clusters[0], status, now.Add(2*time.Second))
	if status.State != fleet.StateUnreachable || !strings.Contains(status.Reason, "connection refused") || status.Version != "v1.37.2" {
		t.Fatalf("closed: %+v", status)
	}
	if !status.Since.Equal(now.Add(2 * time.Second)) {
		t.Errorf("since %v", status.Since)
	}
}

// TestEndlessAnswerIsCut: an API server that never stops talking costs a bounded
// amount of memory and is named.
func TestEndlessAnswerIsCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		junk := []byte(strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			if _, err := w.Write(junk); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	clusters, err := fleet.FromKubeconfig(write(t, strings.ReplaceAll(twoContexts, "https://east.example:6443", server.URL)), []string{"east"})
	if err != nil {
		t.Fatal(err)
	}
	status := fleet.Look(t.Context(), clusters[0], fleet.Status{}, time.Now())
	if status.State != fleet.StateUnreachable || !strings.Contains(status.Reason, "cluster east answers /version with more than 4 MiB") {
		t.Errorf("got %+v", status)
	}
}

func TestContextMayBeGivenByID(t *testing.T) {
	clusters, err := fleet.FromKubeconfig(write(t, twoContexts), []string{"admin-west"})
	if err != nil || len(clusters) != 1 || clusters[0].Alias != "Admin@West" {
		t.Errorf("got %v, %v", clusters, err)
	}
}

func TestRegistryRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","gitVersion":"v1","metadata":{},"items":[]}`))
	}))
	defer server.Close()
	clusters, err := fleet.FromKubeconfig(write(t, strings.ReplaceAll(twoContexts, "https://east.example:6443", server.URL)), []string{"east"})
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan fleet.Status, 1)
	reg := prometheus.NewPedanticRegistry()
	r := fleet.New(fleet.Config{Clusters: clusters, Registerer: reg, Changed: func(_ fleet.Cluster, s fleet.Status) { changed <- s }})
	if got := r.Status("east").State; got != fleet.StatePending {
		t.Errorf("before: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	if s := <-changed; s.State != fleet.StateReady {
		t.Errorf("got %+v", s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
