package render

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

// Formats lists the names of the formats.
func Formats() []string { return []string{"table", "json", "html", "md"} }

// Write renders a report in one of Formats. Color is for tables on a terminal.
func Write(w io.Writer, format string, report *inspect.Report, color bool) error {
	switch format {
	case "table":
		return Table(w, report, color)
	case "json":
		return JSON(w, report)
	case "html":
		return HTML(w, report)
	case "md":
		return Markdown(w, report)
	default:
		return fmt.Errorf("no format %q; choose one of %s", format, strings.Join(Formats(), ", "))
	}
}

// JSON writes the report as indented JSON.
func JSON(w io.Writer, report *inspect.Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

// failed returns the failed results, the heaviest first.
func failed(cluster *inspect.ClusterReport) []inspect.Result {
	return pick(cluster, checks.Fail)
}

func pick(cluster *inspect.ClusterReport, status checks.Status) []inspect.Result {
	var picked []inspect.Result
	for _, result := range cluster.Results {
		if result.Status == status {
			picked = append(picked, result)
		}
	}
	slices.SortStableFunc(picked, func(a, b inspect.Result) int { return a.Severity.Rank() - b.Severity.Rank() })
	return picked
}

// counts is one line of how many checks passed, failed and so on.
func counts(cluster *inspect.ClusterReport) string {
	return fmt.Sprintf("%d passed, %d failed, %d unknown, %d waived, %d not applicable",
		cluster.Counts[checks.Pass], cluster.Counts[checks.Fail], cluster.Counts[checks.Unknown],
		cluster.Counts[checks.Waived], cluster.Counts[checks.NotApplicable])
}

// meaning says in a sentence what a verdict means.
func meaning(verdict inspect.Verdict) string {
	switch verdict {
	case inspect.Go:
		return "Ready: no critical or high check has failed, and enough could be seen to say so."
	case inspect.Risk:
		return "Ready with accepted risks: every critical or high failure is covered by a waiver that someone signed for."
	case inspect.NoGo:
		return "Not ready: at least one critical or high check has failed and is not waived. Repair it, or have its owner accept the risk with a waiver."
	default:
		return "Cannot say: too little could be seen. Nothing that was seen forbids to go, but what was not seen may. Restore access and inspect again."
	}
}

func coverage(cluster *inspect.ClusterReport) string {
	return fmt.Sprintf("%.0f %%", 100*cluster.Coverage)
}

func tally(report *inspect.Report) string {
	byVerdict := map[inspect.Verdict]int{}
	for _, cluster := range report.Clusters {
		byVerdict[cluster.Verdict]++
	}
	var parts []string
	for _, verdict := range slices.Backward(inspect.Verdicts()) {
		if count := byVerdict[verdict]; count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, verdict))
		}
	}
	noun := "clusters"
	if len(report.Clusters) == 1 {
		noun = "cluster"
	}
	return fmt.Sprintf("%d %s: %s", len(report.Clusters), noun, strings.Join(parts, ", "))
}

func when(report *inspect.Report) string {
	text := report.Started.UTC().Format("2006-01-02 15:04:05 UTC")
	if report.Replayed {
		return text + ", replayed from a saved snapshot"
	}
	return text + fmt.Sprintf(", took %s", report.Finished.Sub(report.Started).Round(100*time.Millisecond))
}

// plain keeps control characters of foreign text away from terminals.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, text)
}

// evidence is a finding's value and threshold in a few words.
func evidence(finding *inspect.Finding) string {
	switch {
	case finding.Value == "":
		return ""
	case finding.Threshold == "":
		return finding.Value
	default:
		return finding.Value + "; threshold " + finding.Threshold
	}
}
