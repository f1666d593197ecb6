package render

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

//go:embed report.html.tmpl
var reportTemplate string

// topRisks bounds the list of worst things at the head of the HTML report.
const topRisks = 10

// topRisk is one failed check of one cluster.
type topRisk struct {
	Cluster string
	Result  inspect.Result
}

type htmlPage struct {
	Report  *inspect.Report
	Tally   string
	When    string
	Risks   []topRisk
	MoreBad int
}

// HTML writes the report as one self-contained page: no script, no request
// for anything else, readable in light and dark, on paper and on a phone.
func HTML(w io.Writer, report *inspect.Report) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"meaning":  meaning,
		"coverage": func(c inspect.ClusterReport) string { return coverage(&c) },
		"counts":   func(c inspect.ClusterReport) string { return counts(&c) },
		"failed":   func(c inspect.ClusterReport) []inspect.Result { return failed(&c) },
		"status": func(c inspect.ClusterReport, status string) []inspect.Result {
			return pick(&c, checks.Status(status))
		},
		"count":    func(c inspect.ClusterReport, status string) int { return c.Counts[checks.Status(status)] },
		"css":      func(v any) string { return strings.ReplaceAll(strings.ToLower(fmt.Sprint(v)), "/", "") },
		"evidence": func(f inspect.Finding) string { return evidence(&f) },
		"more":     func(r inspect.Result) int { return r.FindingsTotal - len(r.Findings) },
		"plain":    func(v any) string { return plain(fmt.Sprint(v)) },
	}).Parse(reportTemplate)
	if err != nil {
		return fmt.Errorf("read the report template: %w", err)
	}
	data := htmlPage{Report: report, Tally: tally(report), When: when(report)}
	for severity := range 4 {
		for i := range report.Clusters {
			cluster := &report.Clusters[i]
			for _, result := range failed(cluster) {
				if result.Severity.Rank() == severity {
					data.Risks = append(data.Risks, topRisk{cluster.Cluster, result})
				}
			}
		}
	}
	if len(data.Risks) > topRisks {
		data.MoreBad = len(data.Risks) - topRisks
		data.Risks = data.Risks[:topRisks]
	}
	return page.Execute(w, data)
}
