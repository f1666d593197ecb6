package render

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

// tableFindings bounds the findings that the table shows of one check.
const tableFindings = 5

type table struct {
	w     *bufio.Writer
	color bool
}

// Table writes the report for a terminal: the fleet, then each cluster with
// what failed, what is unknown and what is waived.
func Table(w io.Writer, report *inspect.Report, color bool) error {
	t := &table{bufio.NewWriter(w), color}
	t.heading("", report.Verdict, tally(report))
	t.line("%s", meaning(report.Verdict))
	t.line("Inspected %s", when(report))
	for i := range report.Clusters {
		t.cluster(&report.Clusters[i])
	}
	t.waivers(report)
	return t.w.Flush()
}

// line writes a line of text that may come from a cluster.
func (t *table) line(format string, args ...any) {
	fmt.Fprintln(t.w, plain(fmt.Sprintf(format, args...)))
}

// heading writes a line that begins with a name and a verdict.
func (t *table) heading(name string, v inspect.Verdict, rest string) {
	word := string(v)
	if t.color {
		code := map[inspect.Verdict]string{inspect.Go: "32", inspect.Risk: "33", inspect.NoGo: "31", inspect.Unknown: "35"}[v]
		word = "\x1b[1;" + code + "m" + word + "\x1b[0m"
	}
	fmt.Fprintf(t.w, "%s%s  %s\n", plain(name), word, plain(rest))
}

func (t *table) cluster(c *inspect.ClusterReport) {
	t.line("")
	t.heading(c.Cluster+"  ", c.Verdict, c.KubernetesVersion)
	t.line("  %s; coverage of critical and high checks %s", counts(c), coverage(c))
	for _, reason := range c.Reasons {
		t.line("  %s", reason)
	}
	if c.Unreachable != nil {
		t.line("  Next: check the kubeconfig's server and credentials for %s (%s)", c.Cluster, c.Server)
		return
	}
	for _, result := range failed(c) {
		t.result("FAIL", &result)
	}
	for _, result := range pick(c, checks.Unknown) {
		t.line("  %-7s %-8s %-5s  %s", "UNKNOWN", result.Severity, result.Check, result.Title)
		t.line("          %s", result.Note)
	}
	for _, result := range pick(c, checks.Waived) {
		t.result("WAIVED", &result)
	}
}

func (t *table) result(word string, result *inspect.Result) {
	t.line("  %-7s %-8s %-5s  %s", word, result.Severity, result.Check, result.Title)
	for i := range result.Findings {
		if i == tableFindings {
			break
		}
		finding := &result.Findings[i]
		text := finding.Object.Path() + ": " + finding.Message
		if about := evidence(finding); about != "" {
			text += " (" + about + ")"
		}
		if finding.Waiver != nil {
			text += fmt.Sprintf(" [waived by %s until %s: %s]", finding.Waiver.Owner, finding.Waiver.Expires.Format("2006-01-02"), finding.Waiver.Reason)
		}
		t.line("          %s", text)
	}
	if more := result.FindingsTotal - min(len(result.Findings), tableFindings); more > 0 {
		t.line("          … and %d more; -o json or html shows them", more)
	}
	if result.Status == checks.Fail {
		t.line("          Next: %s", result.Remedy)
	}
}

func (t *table) waivers(report *inspect.Report) {
	var notes []string
	for _, use := range report.Waivers {
		switch {
		case use.Expired:
			notes = append(notes, fmt.Sprintf("waiver of %s for %s in %s by %s expired on %s and counts for nothing",
				use.Check, use.Object, use.Cluster, use.Owner, use.Expires.Format("2006-01-02")))
		case use.Matched == 0:
			notes = append(notes, fmt.Sprintf("waiver of %s for %s in %s by %s matches nothing; remove it", use.Check, use.Object, use.Cluster, use.Owner))
		}
	}
	if len(notes) > 0 {
		t.line("")
		t.line("%s", strings.Join(notes, "; "))
	}
}
