package render_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/render"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

var update = flag.Bool("update", false, "rewrite the golden reports")

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// hostile is what a cluster may put into any text.
const hostile = "<script>alert(1)</script> \x1b[31m`|*_[x](http://evil.example)\n# @all"

func result(id, title string, status checks.Status, severity checks.Severity, findings ...inspect.Finding) inspect.Result {
	return inspect.Result{
		Check: id, Title: title, Category: checks.Nodes, Severity: severity, Declared: severity, Status: status,
		Note: "3 nodes", Threshold: "any", Source: "somebody", Remedy: "Repair it.", Reads: []snapshot.Resource{snapshot.Nodes},
		Findings: findings, FindingsTotal: len(findings),
	}
}

func finding(kind, name, message string) inspect.Finding {
	return inspect.Finding{Fingerprint: "0123456789abcdef", Finding: checks.Finding{
		Object: checks.Object{Kind: kind, Name: name}, Severity: checks.High, Message: message, Value: "1", Threshold: "0",
	}}
}

func sample() *inspect.Report {
	counts := func(pass, fail, unknown, na, waived int) map[checks.Status]int {
		return map[checks.Status]int{checks.Pass: pass, checks.Fail: fail, checks.Unknown: unknown, checks.NotApplicable: na, checks.Waived: waived}
	}
	waiver := inspect.Waiver{Check: "ND-03", Cluster: "*", Object: "Node/*", Reason: "disk exchange", Owner: "sre", Expires: start.Add(48 * time.Hour)}
	waived := finding("Node", "n2", "node is under pressure")
	waived.Waiver = &waiver
	many := result("WL-02", "No container crash-loops", checks.Fail, checks.High)
	for range 8 {
		many.Findings = append(many.Findings, finding("Pod", "bad", "container app crash-loops"))
	}
	many.FindingsTotal = 70
	return &inspect.Report{
		Schema: inspect.Schema, ID: "20261130T120000.000Z", Version: "test", Started: start, Finished: start.Add(6 * time.Second),
		Verdict: inspect.NoGo, Reasons: []string{"a is NO-GO: 2 high checks have failed and are not waived"},
		Waivers: []inspect.WaiverUse{
			{Waiver: waiver, Matched: 1},
			{Waiver: inspect.Waiver{Check: "ND-01", Cluster: "a", Object: "Node/n9", Reason: "old", Owner: "sre", Expires: start.Add(-time.Hour)}, Expired: true},
		},
		Clusters: []inspect.ClusterReport{
			{
				Cluster: "a", Server: "https://10.0.0.1:6443", KubernetesVersion: "v1.37.2", Started: start, Finished: start.Add(6 * time.Second),
				Nodes: 3, Pods: 40, Verdict: inspect.NoGo, Reasons: []string{"2 high checks have failed and are not waived"},
				Coverage: 0.97, GatingChecks: 40, GatingEvaluated: 39, Counts: counts(1, 2, 1, 1, 1),
				Unread: []inspect.Unread{{Resource: snapshot.CSRs, Reason: snapshot.ReasonForbidden, Message: "csr is forbidden " + hostile}},
				Results: []inspect.Result{
					result("CP-01", "Control plane nodes are ready", checks.NotApplicable, checks.Critical),
					result("ND-01", "Nodes are ready", checks.Fail, checks.High, finding("Node", "n1", "node is not ready: "+hostile)),
					result("ND-03", "Nodes are not under pressure", checks.Waived, checks.High, waived),
					result("CE-05", "Certificate requests do not wait", checks.Unknown, checks.High),
					many,
					result("CA-06", "Quotas leave room", checks.Pass, checks.High),
				},
			},
			{
				Cluster: "b", Server: "https://10.0.1.1:6443", Started: start, Finished: start.Add(time.Second), Verdict: inspect.Unknown,
				Reasons:     []string{"the cluster is unreachable: connection_refused: dial tcp 10.0.1.1:6443"},
				Unreachable: &snapshot.Problem{Reason: snapshot.ReasonRefused, Message: "dial tcp 10.0.1.1:6443"},
				Counts:      counts(0, 0, 1, 0, 0), GatingChecks: 1,
				Results: []inspect.Result{result("ND-01", "Nodes are ready", checks.Unknown, checks.Critical)},
			},
			{
				Cluster: "c", Server: "https://10.0.2.1:6443", KubernetesVersion: "v1.36.0", Started: start, Finished: start.Add(time.Second),
				Verdict: inspect.Go, Coverage: 1, GatingChecks: 1, GatingEvaluated: 1, Counts: counts(1, 0, 0, 0, 0), Nodes: 9, Pods: 90,
				Results: []inspect.Result{result("ND-01", "Nodes are ready", checks.Pass, checks.Critical)},
			},
		},
	}
}

func TestGolden(t *testing.T) {
	for _, format := range render.Formats() {
		t.Run(format, func(t *testing.T) {
			var got bytes.Buffer
			if err := render.Write(&got, format, sample(), false); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "report."+map[bool]string{true: "txt", false: format}[format == "table"])
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; run with -update", err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if err := render.Write(&bytes.Buffer{}, "pdf", sample(), false); err == nil {
		t.Error("no error for an unknown format")
	}
}

// TestHTMLIsSelfContained: nothing is fetched, nothing foreign is markup.
func TestHTMLIsSelfContained(t *testing.T) {
	var page bytes.Buffer
	if err := render.HTML(&page, sample()); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, pattern := range []string{`<script`, `(?i)\bsrc\s*=`, `url\(`, `@import`, `href="(?:https?:)?//`, `\x1b`} {
		if found := regexp.MustCompile(pattern).FindString(text); found != "" {
			t.Errorf("the page holds %q", found)
		}
	}
	for _, want := range []string{"NO-GO", "UNKNOWN", "&lt;script&gt;", "prefers-color-scheme: dark", "@media print", `lang="en"`, "connection_refused"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, tag := range []string{"details", "section", "table", "div", "ol", "ul", "main"} {
		if opened, closed := len(regexp.MustCompile("<"+tag+"[ >]").FindAllString(text, -1)), strings.Count(text, "</"+tag+">"); opened != closed {
			t.Errorf("%d <%s>, %d </%s>", opened, tag, closed, tag)
		}
	}
}

func TestTerminalIsSafe(t *testing.T) {
	var plain, colored bytes.Buffer
	if err := render.Table(&plain, sample(), false); err != nil {
		t.Fatal(err)
	}
	if err := render.Table(&colored, sample(), true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("an escape sequence of a cluster reaches the terminal")
	}
	if strings.Count(colored.String(), "\x1b[") != 2*4 {
		t.Errorf("want one coloured verdict for the fleet and each cluster:\n%q", colored.String())
	}
}

func TestMarkdownIsBounded(t *testing.T) {
	report := sample()
	for range 12 {
		report.Clusters = append(report.Clusters, report.Clusters...)
		if len(report.Clusters) > 2000 {
			break
		}
	}
	var text bytes.Buffer
	if err := render.Markdown(&text, report); err != nil {
		t.Fatal(err)
	}
	if text.Len() > 64<<10 || !strings.Contains(text.String(), "Cut here") {
		t.Errorf("%d bytes", text.Len())
	}
}

func TestJSONRoundTrip(t *testing.T) {
	var text bytes.Buffer
	if err := render.JSON(&text, sample()); err != nil {
		t.Fatal(err)
	}
	var again inspect.Report
	decoder := json.NewDecoder(&text)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&again); err != nil {
		t.Fatal(err)
	}
	if again.Verdict != inspect.NoGo || len(again.Clusters) != 3 || again.Clusters[0].Results[1].Findings[0].Object.Name != "n1" {
		t.Errorf("%+v", again)
	}
}
