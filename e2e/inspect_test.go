package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/testprogram"
)

type report struct {
	Verdict  string
	Clusters []struct {
		Cluster, Verdict string
		Reasons          []string
		Unreachable      *struct{ Message string }
		Results          []checkResult
	}
}

type checkResult struct {
	Check, Severity, Status string
	Findings                []struct {
		Object   struct{ Kind, Namespace, Name string }
		Message  string
		Severity string
	}
}

// verdictExit are the exit codes of the verdicts.
var verdictExit = map[string]int{"GO": 0, "RISK": 2, "NO-GO": 3, "UNKNOWN": 4}

func (i *instance) inspect(args ...string) report {
	i.t.Helper()
	args = append([]string{"inspect", "run", "--kubeconfig", i.kubeconfig(), "-o", "json"}, args...)
	out, stderr, code := run(i.t, testprogram.Path(i.t, "fleetwatch"), args...)
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		i.t.Fatalf("inspect: exit %d, %v\n%s%s", code, err, out, stderr)
	}
	if want, ok := verdictExit[r.Verdict]; !ok || code != want {
		i.t.Fatalf("inspect: exit %d with verdict %s", code, r.Verdict)
	}
	return r
}

// expected are the findings that are true of a testbed without a fault: one
// control plane node, a database with one replica, the broken workload, and the
// disk of a test machine that several etcds share.
func expected(check string, namespace string) bool {
	switch check {
	case "CP-02", "WL-05", "ET-04", "ET-05":
		return true
	}
	return namespace == "demo-broken"
}

func faultsAreFound(t *testing.T, i *instance) {
	// The crash-looping pod of the step before is found while it is there.
	i.eventually(time.Minute, "the crash-looping pod to be found", func() error { return i.inspect("--cluster", "a").names("WL-02", "Pod", crashPod) })
	i.testbed("fault", "clear", "crash-loop", "--cluster", "a")
	i.eventually(time.Minute, "an inspection without a false finding", func() error {
		for _, c := range i.inspect().Clusters {
			for _, r := range c.Results {
				if r.Status == "unknown" {
					return fmt.Errorf("%s: %s is unknown", c.Cluster, r.Check)
				}
				for _, f := range r.Findings {
					if !expected(r.Check, f.Object.Namespace) {
						return fmt.Errorf("%s: %s (%s) finds %s/%s: %s", c.Cluster, r.Check, r.Severity, f.Object.Kind, f.Object.Name, f.Message)
					}
				}
			}
		}
		return nil
	})
	for _, f := range []struct {
		fault  string
		args   []string
		check  []string // any of these
		object string
	}{
		{"node-heartbeat", []string{"--node", "a-worker-003"}, []string{"ND-01"}, "a-worker-003"},
		{"service-no-endpoints", nil, []string{"SV-01"}, "no-endpoints"},
		{"scheduler-down", nil, []string{"CP-06", "CP-07", "CP-08"}, "kube-scheduler"},
	} {
		args := append([]string{f.fault, "--cluster", "a"}, f.args...)
		i.testbed(append([]string{"fault", "inject"}, args...)...)
		took := i.eventually(90*time.Second, "inspection to find "+f.fault, func() error {
			r := i.inspect("--cluster", "a")
			if r.Verdict != "NO-GO" {
				return fmt.Errorf("verdict %s", r.Verdict)
			}
			var err error
			for _, check := range f.check {
				if err = r.names(check, "", f.object); err == nil {
					return nil
				}
			}
			return err
		})
		t.Logf("%s was found after %s", f.fault, took.Round(time.Second))
		i.testbed(append([]string{"fault", "clear"}, args...)...)
	}
	i.testbed("fault", "inject", "apiserver-down", "--cluster", "a")
	r := i.inspect()
	if r.Verdict != "UNKNOWN" && r.Verdict != "NO-GO" {
		t.Errorf("with an API server down the fleet is %s", r.Verdict)
	}
	for _, c := range r.Clusters {
		if c.Cluster == "a" && (c.Verdict != "UNKNOWN" || c.Unreachable == nil || !strings.Contains(c.Unreachable.Message, "refused")) {
			t.Errorf("the unreachable cluster: %s %+v", c.Verdict, c.Unreachable)
		}
	}
	if r := i.inspect("--cluster", "a"); r.Verdict != "UNKNOWN" { // exit code 4, see inspect
		t.Errorf("the unreachable cluster alone: %s", r.Verdict)
	}
	i.testbed("fault", "clear", "apiserver-down", "--cluster", "a")
	i.testbed("fault", "inject", "crash-loop", "--cluster", "a") // the next steps want its events
	i.eventually(90*time.Second, "every target of a", func() error {
		if a := i.cluster("a"); a.Status.State != "ready" || a.Up != a.Expected {
			return fmt.Errorf("%s, %d of %d", a.Status.State, a.Up, a.Expected)
		}
		return nil
	})
}

// names says whether the check failed with evidence that names the object.
func (r report) names(check, kind, object string) error {
	for _, c := range r.Clusters {
		at := slices.IndexFunc(c.Results, func(x checkResult) bool { return x.Check == check })
		if at < 0 || c.Results[at].Status != "fail" {
			continue
		}
		for _, f := range c.Results[at].Findings {
			if strings.Contains(f.Object.Name, object) && (kind == "" || f.Object.Kind == kind) {
				return nil
			}
		}
		return fmt.Errorf("%s fails, but names %v", check, c.Results[at].Findings)
	}
	return fmt.Errorf("%s does not fail", check)
}
