package checks_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

var update = flag.Bool("update", false, "rewrite docs/checks.md")

func found(results []checks.Result) []string {
	var all []string
	for _, result := range results {
		for _, finding := range result.Findings {
			line := fmt.Sprintf("%s %s %s", result.Check.ID, finding.Severity, finding.Object.Path())
			if !slices.Contains(all, line) {
				all = append(all, line)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestFaults: every fault is found, and nothing else is.
func TestFaults(t *testing.T) {
	for _, test := range slices.Concat(faults(), decoys()) {
		t.Run(test.name, func(t *testing.T) {
			snap := healthy()
			test.change(snap)
			results := checks.Evaluate(snap)
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, found(results)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for _, result := range results {
				if result.Status == checks.Unknown {
					t.Errorf("%s is unknown: %s", result.Check.ID, result.Note)
				}
				if result.Note == "" {
					t.Errorf("%s does not say what it looked at", result.Check.ID)
				}
			}
		})
	}
}

// TestEveryCheckHasAFault: no check goes without a fault that makes it fail.
func TestEveryCheckHasAFault(t *testing.T) {
	covered := map[string]bool{}
	for _, fault := range faults() {
		for _, line := range fault.want {
			id, _, _ := strings.Cut(line, " ")
			covered[id] = true
		}
	}
	for _, check := range checks.Catalogue() {
		if !covered[check.ID] {
			t.Errorf("%s has no fault", check.ID)
		}
		delete(covered, check.ID)
	}
	if len(covered) > 0 {
		t.Errorf("faults of unknown checks: %v", slices.Sorted(maps.Keys(covered)))
	}
}

// TestFailedReadIsUnknown: whatever a check reads, without it the check is
// unknown and says why, even when the rest would make it fail.
func TestFailedReadIsUnknown(t *testing.T) {
	for _, resource := range snapshot.AllReads() {
		for _, reason := range []snapshot.Reason{snapshot.ReasonForbidden, snapshot.ReasonTimeout} {
			snap := healthy()
			read := snap.Reads[resource]
			read.Problem = &snapshot.Problem{Reason: reason, Message: "no"}
			snap.Reads[resource] = read
			for _, result := range checks.Evaluate(snap) {
				if !slices.Contains(result.Check.Reads, resource) {
					continue
				}
				if result.Status != checks.Unknown || !strings.Contains(result.Note, string(reason)) {
					t.Errorf("%s without %s: %s (%s)", result.Check.ID, resource, result.Status, result.Note)
				}
			}
		}
	}
}

func TestNothingReadIsUnknown(t *testing.T) {
	empty := &snapshot.Snapshot{Cluster: "a", Reads: map[snapshot.Resource]snapshot.Read{}}
	dead := healthy()
	dead.Unreachable = &snapshot.Problem{Reason: snapshot.ReasonRefused, Message: "no"}
	for _, snap := range []*snapshot.Snapshot{empty, dead} {
		for _, result := range checks.Evaluate(snap) {
			if result.Status != checks.Unknown {
				t.Errorf("%s: %s", result.Check.ID, result.Status)
			}
		}
	}
}

// TestUnseenIsUnknown: what cannot be reached from here is unknown, not passed.
func TestUnseenIsUnknown(t *testing.T) {
	snap := healthy()
	timeout := &snapshot.Problem{Reason: snapshot.ReasonTimeout, Message: "i/o timeout"}
	for i := range snap.Probes {
		snap.Probes[i].OK, snap.Probes[i].Status, snap.Probes[i].Body, snap.Probes[i].Problem = false, 0, "", timeout
	}
	for i := range snap.Scrapes {
		if snap.Scrapes[i].Component == "etcd" {
			snap.Scrapes[i].First, snap.Scrapes[i].Problem = nil, timeout
		}
	}
	var unknown []string
	for _, result := range checks.Evaluate(snap) {
		if result.Status == checks.Fail {
			t.Errorf("%s fails: %v", result.Check.ID, result.Findings)
		}
		if result.Status == checks.Unknown {
			unknown = append(unknown, result.Check.ID)
		}
	}
	want := []string{"CP-08", "ET-01", "ET-02", "ET-03", "ET-04", "ET-05", "ET-10", "ET-11"}
	if diff := cmp.Diff(want, unknown); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

func TestCatalogueIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, check := range checks.Catalogue() {
		if seen[check.ID] {
			t.Errorf("%s is there twice", check.ID)
		}
		seen[check.ID] = true
		if check.Title == "" || check.Threshold == "" || check.Source == "" || check.Remedy == "" || len(check.Reads) == 0 ||
			check.Severity.Rank() < 0 || check.Category == "" {
			t.Errorf("%s is incomplete: %+v", check.ID, check)
		}
		for _, resource := range slices.Concat(check.Reads, check.Also) {
			if !slices.Contains(snapshot.AllReads(), resource) {
				t.Errorf("%s reads %q, which nobody reads", check.ID, resource)
			}
		}
	}
}

// TestFindingsStayWithinDeclaredSeverity: a finding is never heavier than its
// check's severity, by which coverage is counted.
func TestFindingsStayWithinDeclaredSeverity(t *testing.T) {
	for _, fault := range faults() {
		snap := healthy()
		fault.change(snap)
		for _, result := range checks.Evaluate(snap) {
			for _, finding := range result.Findings {
				if finding.Severity.Rank() < result.Check.Severity.Rank() {
					t.Errorf("%s: finding is %s, check is %s", result.Check.ID, finding.Severity, result.Check.Severity)
				}
			}
		}
	}
}

// TestSnapshotSurvivesJSON: a replayed snapshot gives the same results.
func TestSnapshotSurvivesJSON(t *testing.T) {
	for _, fault := range faults() {
		snap := healthy()
		fault.change(snap)
		text, err := json.Marshal(snap)
		if err != nil {
			t.Fatal(err)
		}
		var again snapshot.Snapshot
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(found(checks.Evaluate(snap)), found(checks.Evaluate(&again))); diff != "" {
			t.Errorf("%s: replayed (-before +after):\n%s", fault.name, diff)
		}
	}
}

// TestReference keeps docs/checks.md equal to the catalogue.
func TestReference(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "checks.md")
	current, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write its head first", err)
	}
	const mark = "<!-- below: made from the code by go test ./inspect/checks -update -->\n"
	head, _, ok := strings.Cut(string(current), mark)
	if !ok {
		t.Fatalf("%s has lost its mark %q", path, mark)
	}
	want := head + mark + reference()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(current), want); diff != "" {
		t.Errorf("docs/checks.md is not what the code says; run go test ./inspect/checks -update\n%s", diff)
	}
}

func reference() string {
	var b strings.Builder
	catalogue := checks.Catalogue()
	fmt.Fprintf(&b, "\n## The %d checks\n", len(catalogue))
	category := checks.Category("")
	for _, check := range catalogue {
		if check.Category != category {
			category = check.Category
			fmt.Fprintf(&b, "\n### %s\n\n", strings.ToUpper(string(category)[:1])+string(category)[1:])
		}
		fmt.Fprintf(&b, "**%s %s** (%s)\n\n- Fails when: %s. Source: %s.\n- Reads: %s", check.ID, check.Title, check.Severity, check.Threshold, check.Source, names(check.Reads))
		if len(check.Also) > 0 {
			fmt.Fprintf(&b, "; where it can: %s", names(check.Also))
		}
		fmt.Fprintf(&b, ".\n- Then: %s\n\n", check.Remedy)
	}
	return b.String()
}

func names(resources []snapshot.Resource) string {
	var all []string
	for _, resource := range resources {
		all = append(all, string(resource))
	}
	return strings.Join(all, ", ")
}
