package collector_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestProfile runs real discovery over the objects of each testdata/profile/*.yaml
// and compares the published targets with the .golden file next to it.
func TestProfile(t *testing.T) {
	files, err := filepath.Glob("testdata/profile/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			r := start(t, newFakeAPI(t, objectsOf(t, file)...), nil)
			list := r.await(t, "discovery has delivered", synced)
			checkList(t, r.url, list)
			got := renderTargets(t, list)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("targets differ from %s (-want +got); run with -update when this is right:\n%s", golden, diff)
			}
		})
	}
}

// checkList holds for every list.
func checkList(t *testing.T, url string, list target.List) {
	t.Helper()
	if !slices.IsSortedFunc(list.Targets, func(a, b target.Target) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("targets are not sorted by ID")
	}
	if !slices.IsSortedFunc(list.Pools, func(a, b target.Pool) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("pools are not sorted by name")
	}
	pools := map[string]bool{}
	for _, p := range list.Pools {
		pools[p.Name] = true
	}
	seen := map[string]bool{}
	for _, x := range list.Targets {
		switch {
		case len(x.ID) != 16 || seen[x.ID]:
			t.Errorf("ID %q is malformed or doubled", x.ID)
		case x.Labels["cluster"] != "a" || x.Cluster != "a":
			t.Errorf("%s: cluster is %q and %q", x.Address, x.Cluster, x.Labels["cluster"])
		case x.Labels["job"] != x.Job || x.Labels["instance"] == "":
			t.Errorf("%s: job %q, labels %v", x.Address, x.Job, x.Labels)
		case !pools[x.Pool]:
			t.Errorf("%s: pool %q is not in the list", x.Address, x.Pool)
		case x.ScrapeURL != url+"/clusters/a/targets/"+x.ID+"/metrics":
			t.Errorf("%s: scrape URL %q", x.Address, x.ScrapeURL)
		}
		for name := range x.Labels {
			if strings.HasPrefix(name, "__") {
				t.Errorf("%s: label %s", x.Address, name)
			}
		}
		seen[x.ID] = true
	}
}

// renderTargets is one line for each target, for people to read and diff.
func renderTargets(t *testing.T, list target.List) []byte {
	t.Helper()
	lines := make([]string, 0, len(list.Targets))
	for _, x := range list.Targets {
		labels, err := json.Marshal(x.Labels)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimPrefix(x.Pool, "a/")+" "+x.Address+" "+string(labels)+" "+x.ID+"\n")
	}
	slices.Sort(lines)
	return bytes.Join([][]byte{[]byte(strings.Join(lines, ""))}, nil)
}
