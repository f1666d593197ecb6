package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// Schema names the JSON form of a Report. Fields are only ever added to it.
const Schema = "fleetwatch.io/inspection/v1"

// MaxFindings bounds the findings that a report shows of one check in one
// cluster; FindingsTotal counts all of them.
const MaxFindings = 50

// Report is the outcome of one inspection.
type Report struct {
	Schema   string    `json:"schema"`
	ID       string    `json:"id"`
	Version  string    `json:"fleetwatch_version,omitempty"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Replayed is true when the snapshots come from a file.
	Replayed bool            `json:"replayed,omitempty"`
	Verdict  Verdict         `json:"verdict"`
	Reasons  []string        `json:"reasons,omitempty"`
	Clusters []ClusterReport `json:"clusters"`
	Waivers  []WaiverUse     `json:"waivers,omitempty"`
}

// ClusterReport is the outcome for one cluster.
type ClusterReport struct {
	Cluster           string            `json:"cluster"`
	Server            string            `json:"server"`
	KubernetesVersion string            `json:"kubernetes_version,omitempty"`
	Started           time.Time         `json:"started"`
	Finished          time.Time         `json:"finished"`
	ClockSkew         time.Duration     `json:"clock_skew_ns,omitempty"`
	Nodes             int               `json:"nodes"`
	Pods              int               `json:"pods"`
	Verdict           Verdict           `json:"verdict"`
	Reasons           []string          `json:"reasons,omitempty"`
	Unreachable       *snapshot.Problem `json:"unreachable,omitempty"`
	// Coverage is GatingEvaluated / GatingChecks: the part of the critical and
	// high checks that apply here and could be decided.
	Coverage        float64               `json:"coverage"`
	GatingChecks    int                   `json:"gating_checks"`
	GatingEvaluated int                   `json:"gating_evaluated"`
	Counts          map[checks.Status]int `json:"counts"`
	// Unread lists what could not be read.
	Unread  []Unread `json:"unread,omitempty"`
	Results []Result `json:"results"`
}

// Unread is one read that failed.
type Unread struct {
	Resource snapshot.Resource `json:"resource"`
	Reason   snapshot.Reason   `json:"reason"`
	Message  string            `json:"message"`
}

// Result is what one check says of one cluster.
type Result struct {
	Check    string          `json:"check"`
	Title    string          `json:"title"`
	Category checks.Category `json:"category"`
	// Severity is that of the worst finding that is not waived, or of the worst
	// waived one; without findings it is Declared.
	Severity checks.Severity `json:"severity"`
	// Declared is the check's own severity, by which coverage is counted.
	Declared  checks.Severity     `json:"declared_severity"`
	Status    checks.Status       `json:"status"`
	Note      string              `json:"note,omitempty"`
	Threshold string              `json:"threshold"`
	Source    string              `json:"source"`
	Remedy    string              `json:"remedy"`
	Reads     []snapshot.Resource `json:"reads"`
	Findings  []Finding           `json:"findings,omitempty"`
	// FindingsTotal counts the findings; Findings holds at most MaxFindings.
	FindingsTotal int `json:"findings_total"`

	waivedGating bool // a critical or high finding of a failed check is waived
}

// Finding is one thing that is wrong with one object.
type Finding struct {
	// Fingerprint is the same for the same check, cluster and object in every run.
	Fingerprint string `json:"fingerprint"`
	checks.Finding
	Waiver *Waiver `json:"waiver,omitempty"`
}

// fingerprint is stable across runs: it holds neither times nor values.
func fingerprint(check, cluster string, object checks.Object) string {
	sum := sha256.Sum256([]byte(check + "\x00" + cluster + "\x00" + object.Path()))
	return hex.EncodeToString(sum[:8])
}

// clusterReport evaluates one snapshot, applies the waivers and draws the verdict.
func clusterReport(snap *snapshot.Snapshot, waivers *waiverSet) ClusterReport {
	report := ClusterReport{
		Cluster: snap.Cluster, Server: snap.Server, KubernetesVersion: snap.KubernetesVersion,
		Started: snap.Started, Finished: snap.Finished, ClockSkew: snap.ClockSkew,
		Nodes: len(snap.Nodes), Pods: len(snap.Pods), Unreachable: snap.Unreachable,
		Counts: map[checks.Status]int{
			checks.Pass: 0, checks.Fail: 0, checks.Unknown: 0, checks.NotApplicable: 0, checks.Waived: 0,
		},
	}
	for _, resource := range snapshot.AllReads() {
		if read, tried := snap.Reads[resource]; tried && read.Problem != nil {
			report.Unread = append(report.Unread, Unread{resource, read.Problem.Reason, read.Problem.Message})
		}
	}
	for _, evaluated := range checks.Evaluate(snap) {
		result := newResult(snap.Cluster, evaluated, waivers)
		report.Counts[result.Status]++
		report.Results = append(report.Results, result)
	}
	report.judge()
	return report
}

func newResult(cluster string, evaluated checks.Result, waivers *waiverSet) Result {
	check := evaluated.Check
	result := Result{
		Check: check.ID, Title: check.Title, Category: check.Category, Severity: check.Severity, Declared: check.Severity,
		Status: evaluated.Status, Note: evaluated.Note, Threshold: check.Threshold, Source: check.Source, Remedy: check.Remedy,
		Reads: slices.Concat(check.Reads, check.Also), FindingsTotal: len(evaluated.Findings),
	}
	var open, waived []Finding // each the heaviest first
	for _, finding := range evaluated.Findings {
		kept := Finding{Fingerprint: fingerprint(check.ID, cluster, finding.Object), Finding: finding}
		kept.Waiver = waivers.match(check.ID, cluster, finding.Object)
		if kept.Waiver == nil {
			open = append(open, kept)
		} else {
			waived = append(waived, kept)
		}
	}
	switch {
	case len(open) > 0:
		result.Severity = open[0].Severity
		result.waivedGating = len(waived) > 0 && waived[0].Severity.Gating()
	case len(waived) > 0:
		result.Status, result.Severity = checks.Waived, waived[0].Severity
	}
	result.Findings = slices.Concat(open, waived)
	if len(result.Findings) > MaxFindings {
		result.Findings = result.Findings[:MaxFindings]
	}
	return result
}
