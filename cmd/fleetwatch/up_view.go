package main

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// view is all that the one screen of `fleetwatch up` shows: plain values, so
// that drawing is a pure function.
type view struct {
	now      time.Time
	ready    bool
	clusters []clusterRow
	shards   []shardRow
	verdict  verdictRow
	urls     []urlRow
	troubles []string
	dataDir  string
}

type clusterRow struct {
	id, environment, version string
	nodes                    int64
	state, reason            string
	up, expected             int
}

type shardRow struct {
	name, state      string
	series, capacity int64
	targets          int
	reason           string
}

type verdictRow struct {
	verdict, summary string
	at               time.Time
}

type urlRow struct{ what, url string }

// render writes the screen.
func (v view) render(w io.Writer) {
	p := &printer{w: w}
	status := "starting"
	if v.ready {
		status = "running"
	}
	p.printf("Fleetwatch is %s  %s\n\n", status, v.now.Format("2006-01-02 15:04:05"))

	clusters := [][]string{{"CLUSTER", "ENVIRONMENT", "VERSION", "NODES", "TARGETS UP", "STATUS"}}
	for _, c := range v.clusters {
		clusters = append(clusters, []string{c.id, orDash(c.environment), orDash(c.version), countOrDash(c.nodes), upOf(c.up, c.expected), withReason(c.state, c.reason)})
	}
	p.table(clusters)
	shards := [][]string{{"SHARD", "SERIES", "OF", "TARGETS", "STATUS"}}
	for _, s := range v.shards {
		shards = append(shards, []string{s.name, strconv.FormatInt(s.series, 10), strconv.FormatInt(s.capacity, 10), strconv.Itoa(s.targets), withReason(s.state, s.reason)})
	}
	p.table(shards)
	if v.verdict.verdict == "" {
		p.printf("Verdict     not inspected yet\n")
	} else {
		p.printf("Verdict     %s  %s (inspected %s ago)\n", v.verdict.verdict, oneLine(v.verdict.summary), age(v.now, v.verdict.at))
	}
	p.printf("Data        %s\n\n", v.dataDir)
	for _, u := range v.urls {
		p.printf("%-11s %s\n", u.what, u.url)
	}
	if len(v.troubles) > 0 {
		p.printf("\n")
		for _, t := range v.troubles {
			p.printf("! %s\n", oneLine(t))
		}
	}
	p.printf("\nCtrl-C stops everything; the data stays.\n")
}

// printer keeps the screen's code free of write errors: there is nobody to
// tell when the terminal is gone.
type printer struct{ w io.Writer }

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *printer) table(rows [][]string) {
	_ = printTable(p.w, rows)
	p.printf("\n")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func countOrDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func withReason(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + oneLine(reason)
}

func age(now, at time.Time) string { return now.Sub(at).Truncate(time.Second).String() }
