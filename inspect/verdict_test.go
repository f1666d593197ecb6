package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// results builds results from counts: passed gating checks, and then others.
func passed(n int, more ...Result) []Result {
	var all []Result
	for range n {
		all = append(all, Result{Status: checks.Pass, Severity: checks.High, Declared: checks.High})
	}
	return append(all, more...)
}

func result(status checks.Status, severity checks.Severity) Result {
	return Result{Status: status, Severity: severity, Declared: severity}
}

func TestVerdict(t *testing.T) {
	const (
		critical, high, medium, low = checks.Critical, checks.High, checks.Medium, checks.Low
		fail, waived, unknown, na   = checks.Fail, checks.Waived, checks.Unknown, checks.NotApplicable
	)
	partly := result(fail, medium)
	partly.waivedGating = true
	for _, test := range []struct {
		name    string
		results []Result
		dead    bool
		want    Verdict
	}{
		{"all passed", passed(20), false, Go},
		{"critical failed", passed(20, result(fail, critical)), false, NoGo},
		{"high failed and not waived", passed(20, result(fail, high)), false, NoGo},
		{"high waived", passed(20, result(waived, high)), false, Risk},
		{"critical waived", passed(20, result(waived, critical)), false, Risk},
		{"high findings waived, medium ones left", passed(20, partly), false, Risk},
		{"high waived, another high not", passed(20, result(waived, high), result(fail, high)), false, NoGo},
		{"medium and low failed", passed(20, result(fail, medium), result(fail, low)), false, Go},
		{"medium waived", passed(20, result(waived, medium)), false, Go},
		{"5 % unknown", passed(19, result(unknown, high)), false, Go},
		{"over 5 % unknown", passed(18, result(unknown, high)), false, Unknown},
		{"unknown medium checks do not count", passed(1, result(unknown, medium), result(unknown, low)), false, Go},
		{"n/a does not count", passed(19, result(unknown, high), result(na, critical)), false, Go},
		{"critical failed, all else unknown", []Result{result(fail, critical), result(unknown, critical), result(unknown, high)}, false, NoGo},
		{"high failed, all else unknown", []Result{result(fail, high), result(unknown, critical)}, false, NoGo},
		{"high waived, much unknown", []Result{result(waived, high), result(unknown, critical)}, false, Unknown},
		{"medium failed, much unknown", []Result{result(fail, medium), result(unknown, critical)}, false, Unknown},
		{"unreachable", []Result{result(unknown, critical)}, true, Unknown},
		{"unreachable, though coverage is full", passed(20), true, Unknown},
		{"nothing applies", []Result{result(na, critical), result(na, high)}, false, Unknown},
		{"no results at all", nil, false, Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := ClusterReport{Results: test.results}
			if test.dead {
				c.Unreachable = &snapshot.Problem{Reason: snapshot.ReasonRefused, Message: "no"}
			}
			c.judge()
			if c.Verdict != test.want {
				t.Errorf("got %s, want %s (coverage %.3f)", c.Verdict, test.want, c.Coverage)
			}
			if (c.Verdict != Go) != (len(c.Reasons) > 0) {
				t.Errorf("%s with reasons %q", c.Verdict, c.Reasons)
			}
		})
	}
}

func TestWorst(t *testing.T) {
	for _, test := range []struct {
		in   []Verdict
		want Verdict
	}{
		{[]Verdict{Go, Go}, Go},
		{[]Verdict{Go, Risk}, Risk},
		{[]Verdict{Unknown, Risk}, Unknown},
		{[]Verdict{Unknown, NoGo, Go}, NoGo},
	} {
		if got := worst(test.in); got != test.want {
			t.Errorf("%v: got %s, want %s", test.in, got, test.want)
		}
		slices.Reverse(test.in)
		if got := worst(test.in); got != test.want {
			t.Errorf("%v: got %s, want %s", test.in, got, test.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	var got strings.Builder
	for _, verdict := range append(Verdicts(), "nonsense") {
		fmt.Fprintf(&got, "%s=%d ", verdict, verdict.ExitCode())
	}
	if want := "GO=0 RISK=2 UNKNOWN=4 NO-GO=3 nonsense=4 "; got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}
