package checks

import (
	"fmt"
	"slices"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// Severity says how much a finding weighs in the verdict.
type Severity string

// Critical findings block. High ones block unless waived. The others advise.
const (
	Critical Severity = "critical"
	High     Severity = "high"
	Medium   Severity = "medium"
	Low      Severity = "low"
)

// Rank orders severities, the heaviest first.
func (s Severity) Rank() int {
	return slices.Index([]Severity{Critical, High, Medium, Low}, s)
}

// Gating is true for the severities that count in verdict and coverage.
func (s Severity) Gating() bool { return s == Critical || s == High }

// Category is the area of a check.
type Category string

// The areas, in the order of reports.
const (
	ControlPlane Category = "control plane"
	Etcd         Category = "etcd"
	APIServer    Category = "apiserver"
	Nodes        Category = "nodes"
	Certificates Category = "certificates"
	Workloads    Category = "workloads"
	Services     Category = "services"
	Capacity     Category = "capacity"
)

// Status is the outcome of a check.
type Status string

// A check that could not be decided is Unknown; one without anything to look
// at is NotApplicable; one whose every finding is waived is Waived.
const (
	Pass          Status = "pass"
	Fail          Status = "fail"
	Unknown       Status = "unknown"
	NotApplicable Status = "n/a"
	Waived        Status = "waived"
)

// Check is one entry of the catalogue.
type Check struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Category Category `json:"category"`
	// Severity is the heaviest that a finding of the check can have. It is
	// what counts when the check's coverage is computed.
	Severity Severity `json:"severity"`
	// Reads must all have succeeded. Also are read when they are there.
	Reads []snapshot.Resource `json:"reads"`
	Also  []snapshot.Resource `json:"also_reads,omitempty"`
	// Threshold and Source are for people: the line, and who drew it.
	Threshold string `json:"threshold"`
	Source    string `json:"source"`
	Remedy    string `json:"remedy"`

	eval func(*input) outcome
}

// Object names what a finding is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Path is Kind/namespace/name or Kind/name; waivers match it.
func (o Object) Path() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Finding is one thing that is wrong.
type Finding struct {
	Object    Object   `json:"object"`
	Severity  Severity `json:"severity"`
	Message   string   `json:"message"`
	Value     string   `json:"value,omitempty"`
	Threshold string   `json:"threshold,omitempty"`
}

// Result is what one check says of one cluster.
type Result struct {
	Check  Check
	Status Status
	// Note says what was looked at, or why the check is unknown or n/a.
	Note string
	// Findings are all of them, the heaviest first.
	Findings []Finding
}

// Catalogue lists every check in the order of reports.
func Catalogue() []Check {
	return slices.Concat(
		controlPlaneChecks(), etcdChecks(), apiServerChecks(), nodeChecks(),
		certificateChecks(), workloadChecks(), serviceChecks(), capacityChecks(),
	)
}

// Evaluate runs every check of the catalogue over a snapshot. The result for
// an unreachable cluster is unknown throughout.
func Evaluate(snap *snapshot.Snapshot) []Result {
	in := newInput(snap)
	catalogue := Catalogue()
	results := make([]Result, len(catalogue))
	for i, check := range catalogue {
		out := decide(in, check)
		slices.SortStableFunc(out.findings, func(a, b Finding) int { return a.Severity.Rank() - b.Severity.Rank() })
		results[i] = Result{Check: check, Status: out.status, Note: out.note, Findings: out.findings}
	}
	return results
}

func decide(in *input, check Check) (out outcome) {
	if in.Unreachable != nil {
		return unknown("the cluster is unreachable: %s", in.Unreachable)
	}
	for _, resource := range check.Reads {
		read, tried := in.Reads[resource]
		if !tried {
			return unknown("%s: not read", resource)
		}
		if read.Problem != nil {
			return unknown("%s: %s", resource, read.Problem)
		}
	}
	// A mistake in one check must neither end the inspection nor pass.
	defer func() {
		if cause := recover(); cause != nil {
			out = unknown("internal error in the check: %v", cause)
		}
	}()
	return check.eval(in)
}

// outcome is what an eval function returns.
type outcome struct {
	status   Status
	note     string
	findings []Finding
}

func unknown(format string, args ...any) outcome {
	return outcome{status: Unknown, note: fmt.Sprintf(format, args...)}
}

func notApplicable(format string, args ...any) outcome {
	return outcome{status: NotApplicable, note: fmt.Sprintf(format, args...)}
}

// report gathers findings.
type report struct{ findings []Finding }

func (r *report) add(severity Severity, object Object, value, threshold, format string, args ...any) {
	r.findings = append(r.findings, Finding{
		Object: object, Severity: severity, Value: value, Threshold: threshold, Message: fmt.Sprintf(format, args...),
	})
}

// outcome is fail with the findings, or pass with a note of what was looked at.
func (r *report) outcome(format string, args ...any) outcome {
	status := Pass
	if len(r.findings) > 0 {
		status = Fail
	}
	return outcome{status: status, note: fmt.Sprintf(format, args...), findings: r.findings}
}
