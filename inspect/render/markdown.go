package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

// markdownLimit keeps the report within what chats and merge requests take.
const markdownLimit = 60_000

// markdownFindings bounds the findings that Markdown shows of one check.
const markdownFindings = 10

// Markdown writes the report for a chat or a merge request. A report that is
// too long ends with a line that says so; the verdicts stand at the top.
func Markdown(w io.Writer, report *inspect.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Inspection: %s\n\n%s. %s\n\nInspected %s.\n\n", report.Verdict, tally(report), meaning(report.Verdict), when(report))
	b.WriteString("| Cluster | Verdict | Kubernetes | Coverage | Passed | Failed | Unknown | Waived | Not applicable |\n|---|---|---|---|---|---|---|---|---|\n")
	for i := range report.Clusters {
		c := &report.Clusters[i]
		fmt.Fprintf(&b, "| %s | **%s** | %s | %s | %d | %d | %d | %d | %d |\n", markdown(c.Cluster), c.Verdict, markdown(c.KubernetesVersion), coverage(c),
			c.Counts[checks.Pass], c.Counts[checks.Fail], c.Counts[checks.Unknown], c.Counts[checks.Waived], c.Counts[checks.NotApplicable])
	}
	for i := range report.Clusters {
		markdownCluster(&b, &report.Clusters[i])
	}
	markdownWaivers(&b, report)
	text := b.Bytes()
	if len(text) > markdownLimit {
		cut := bytes.LastIndexByte(text[:markdownLimit], '\n')
		text = append(text[:cut:cut], "\n\n*Cut here: the report is longer. The JSON and HTML forms hold all of it.*\n"...)
	}
	_, err := w.Write(text)
	return err
}

func markdownCluster(b *bytes.Buffer, c *inspect.ClusterReport) {
	fmt.Fprintf(b, "\n## %s: %s\n\n", markdown(c.Cluster), c.Verdict)
	for _, reason := range c.Reasons {
		fmt.Fprintf(b, "- %s\n", markdown(reason))
	}
	if c.Unreachable != nil {
		return
	}
	for _, result := range failed(c) {
		markdownResult(b, "FAIL", &result)
	}
	for _, result := range pick(c, checks.Unknown) {
		fmt.Fprintf(b, "\n**UNKNOWN** · %s · `%s` %s\n\n- %s\n", result.Severity, result.Check, result.Title, markdown(result.Note))
	}
	for _, result := range pick(c, checks.Waived) {
		markdownResult(b, "WAIVED", &result)
	}
}

func markdownResult(b *bytes.Buffer, word string, result *inspect.Result) {
	fmt.Fprintf(b, "\n**%s** · %s · `%s` %s\n\n", word, result.Severity, result.Check, result.Title)
	for i := range result.Findings {
		if i == markdownFindings {
			break
		}
		finding := &result.Findings[i]
		fmt.Fprintf(b, "- %s: %s", markdown(finding.Object.Path()), markdown(finding.Message))
		if about := evidence(finding); about != "" {
			fmt.Fprintf(b, " (%s)", markdown(about))
		}
		if finding.Waiver != nil {
			fmt.Fprintf(b, " — waived by %s until %s: %s", markdown(finding.Waiver.Owner), finding.Waiver.Expires.Format("2006-01-02"), markdown(finding.Waiver.Reason))
		}
		b.WriteByte('\n')
	}
	if more := result.FindingsTotal - min(len(result.Findings), markdownFindings); more > 0 {
		fmt.Fprintf(b, "- … and %d more\n", more)
	}
	if result.Status == checks.Fail {
		fmt.Fprintf(b, "\nNext: %s\n", result.Remedy)
	}
}

func markdownWaivers(b *bytes.Buffer, report *inspect.Report) {
	if len(report.Waivers) == 0 {
		return
	}
	b.WriteString("\n## Waivers\n\n")
	for _, use := range report.Waivers {
		state := fmt.Sprintf("covers %d findings until %s", use.Matched, use.Expires.Format("2006-01-02"))
		if use.Expired {
			state = "expired on " + use.Expires.Format("2006-01-02") + " and counts for nothing"
		}
		fmt.Fprintf(b, "- `%s` %s in %s: %s; %s (%s)\n", use.Check, markdown(use.Object), markdown(use.Cluster), state, markdown(use.Reason), markdown(use.Owner))
	}
}

var markdownEscape = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "|", `\|`, "#", `\#`, "!", `\!`, "@", "&#64;",
)

// markdown escapes foreign text; @ is escaped so that it mentions nobody.
func markdown(text string) string { return markdownEscape.Replace(plain(text)) }
