package inspect

import (
	"fmt"
	"slices"

	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

// Verdict is the answer to "are we ready".
type Verdict string

// The verdicts. NO-GO: a critical or high finding that is not waived. UNKNOWN:
// the cluster is unreachable, or too little could be seen to say. RISK: only
// waived findings stand between the cluster and GO.
const (
	Go      Verdict = "GO"
	Risk    Verdict = "RISK"
	NoGo    Verdict = "NO-GO"
	Unknown Verdict = "UNKNOWN"
)

// Verdicts lists them from best to worst. NO-GO is worse than UNKNOWN: what
// was seen already forbids to go.
func Verdicts() []Verdict { return []Verdict{Go, Risk, Unknown, NoGo} }

// ExitCode is what a command line ends with: 0 GO, 2 RISK, 3 NO-GO, 4 UNKNOWN.
func (v Verdict) ExitCode() int {
	switch v {
	case Go:
		return 0
	case Risk:
		return 2
	case NoGo:
		return 3
	default:
		return 4
	}
}

// MinCoverage is the least part of the critical and high checks that must
// have been evaluated for any verdict but NO-GO and UNKNOWN.
const MinCoverage = 0.95

// worst is the fleet's verdict: that of its worst cluster.
func worst(verdicts []Verdict) Verdict {
	order := Verdicts()
	result := Go
	for _, v := range verdicts {
		if slices.Index(order, v) > slices.Index(order, result) {
			result = v
		}
	}
	return result
}

// judge draws the verdict of one cluster from its results.
func (c *ClusterReport) judge() {
	blocking, waived := map[checks.Severity]int{}, 0
	for _, result := range c.Results {
		switch {
		case result.Status == checks.Fail && result.Severity.Gating():
			blocking[result.Severity]++
		case result.Status == checks.Waived && result.Severity.Gating():
			waived++
		}
		if result.Status == checks.Fail && result.waivedGating {
			waived++
		}
	}
	c.cover()
	switch {
	case blocking[checks.Critical]+blocking[checks.High] > 0:
		c.Verdict = NoGo
		c.say(blocking[checks.Critical], "critical check has failed", "critical checks have failed")
		c.say(blocking[checks.High], "high check has failed and is not waived", "high checks have failed and are not waived")
	case c.Unreachable != nil:
		c.Verdict = Unknown
		c.Reasons = append(c.Reasons, "the cluster is unreachable: "+c.Unreachable.String())
	case c.Coverage < MinCoverage:
		c.Verdict = Unknown
	case waived > 0:
		c.Verdict = Risk
		c.say(waived, "failed check is waived", "failed checks are waived")
	default:
		c.Verdict = Go
	}
	if c.Unreachable == nil && c.Coverage < MinCoverage {
		c.Reasons = append(c.Reasons, fmt.Sprintf("only %.0f %% of the critical and high checks could be evaluated (%d of %d), %.0f %% are needed",
			100*c.Coverage, c.GatingEvaluated, c.GatingChecks, 100*MinCoverage))
	}
}

func (c *ClusterReport) say(count int, one, many string) {
	switch {
	case count == 1:
		c.Reasons = append(c.Reasons, "1 "+one)
	case count > 1:
		c.Reasons = append(c.Reasons, fmt.Sprintf("%d %s", count, many))
	}
}

// cover computes how many of the critical and high checks that apply to the
// cluster have been evaluated. Nothing to evaluate is no coverage.
func (c *ClusterReport) cover() {
	for _, result := range c.Results {
		if !result.Declared.Gating() || result.Status == checks.NotApplicable {
			continue
		}
		c.GatingChecks++
		if result.Status != checks.Unknown {
			c.GatingEvaluated++
		}
	}
	if c.GatingChecks > 0 {
		c.Coverage = float64(c.GatingEvaluated) / float64(c.GatingChecks)
	}
}
