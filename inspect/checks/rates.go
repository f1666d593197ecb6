package checks

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// enough is the least number of observations between the two reads of an
// endpoint for which the window between them speaks for itself.
const enough = 20

// scrapes returns the scrapes of a component that have an answer.
func (in *input) scrapes(component string) []*snapshot.Scrape {
	var found []*snapshot.Scrape
	for i := range in.Scrapes {
		if scrape := &in.Scrapes[i]; scrape.Component == component && scrape.First != nil {
			found = append(found, scrape)
		}
	}
	return found
}

// latest is the newer answer of a scrape.
func latest(scrape *snapshot.Scrape) *snapshot.Samples {
	if scrape.Second != nil {
		return scrape.Second
	}
	return scrape.First
}

// windowed is true when both reads came from the same process.
func windowed(scrape *snapshot.Scrape) bool {
	if scrape.Second == nil {
		return false
	}
	first, ok := scrape.First.Value("process_start_time_seconds")
	second, ok2 := scrape.Second.Value("process_start_time_seconds")
	return ok && ok2 && first == second
}

// young is the age below which a process's totals are those of its start.
const young = time.Hour

// sustained is how many slow requests between two reads make more than a blip.
const sustained = 5

// span says over which time a counter was compared.
type span struct {
	window bool
	// young is true for totals of a process that has just started.
	young bool
	text  string
}

// temper lowers a blocking severity that the observations do not carry: those
// of a start, and a few slow ones in a window of seconds, only advise.
func (s span) temper(severity Severity, slow float64) Severity {
	if severity.Gating() && (s.young || s.window && slow < sustained) {
		return Medium
	}
	return severity
}

// choose takes the window between the two reads when count grew enough in
// it, else all the time since the process started.
func choose(scrape *snapshot.Scrape, count string) span {
	if windowed(scrape) {
		first, second := sum(scrape.First, count), sum(scrape.Second, count)
		if second-first >= enough {
			return span{window: true, text: fmt.Sprintf("over %.0f s", scrape.Second.At.Sub(scrape.First.At).Seconds())}
		}
	}
	newest := latest(scrape)
	if start, ok := newest.Value("process_start_time_seconds"); ok {
		ago := time.Duration((float64(newest.At.Unix()) - start) * float64(time.Second))
		return span{young: ago < young, text: "since the process started " + age(ago) + " ago"}
	}
	return span{text: "since the process started"}
}

// sum adds up a counter's series; the given pairs select among them.
func sum(samples *snapshot.Samples, name string, pairs ...string) float64 {
	total := 0.0
	for _, sample := range samples.Select(name, pairs...) {
		total += sample.Value
	}
	return total
}

// increase is how much a counter grew over the span.
func (s span) increase(scrape *snapshot.Scrape, name string, pairs ...string) float64 {
	newest := sum(latest(scrape), name, pairs...)
	if !s.window {
		return newest
	}
	return max(0, newest-sum(scrape.First, name, pairs...))
}

type bucket struct{ upper, count float64 }

// buckets returns the cumulative buckets of a histogram over the span.
func (s span) buckets(scrape *snapshot.Scrape, name string) []bucket {
	earlier := map[string]float64{}
	if s.window {
		for _, sample := range scrape.First.Select(name + "_bucket") {
			earlier[sample.Labels["le"]] = sample.Value
		}
	}
	var all []bucket
	for _, sample := range latest(scrape).Select(name + "_bucket") {
		le := sample.Labels["le"]
		if upper, err := strconv.ParseFloat(le, 64); err == nil {
			all = append(all, bucket{upper, max(0, sample.Value-earlier[le])})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int {
		if a.upper < b.upper {
			return -1
		}
		return 1
	})
	return all
}

// quantile estimates a quantile as PromQL's histogram_quantile does. It is
// false when nothing was observed or the buckets are not a histogram.
func quantile(q float64, all []bucket) (float64, bool) {
	if len(all) < 2 || !math.IsInf(all[len(all)-1].upper, 1) {
		return 0, false
	}
	total := all[len(all)-1].count
	if total <= 0 {
		return 0, false
	}
	rank := q * total
	at := slices.IndexFunc(all, func(b bucket) bool { return b.count >= rank })
	if at < 0 || at == len(all)-1 {
		return all[len(all)-2].upper, true
	}
	lower, below := 0.0, 0.0
	if at > 0 {
		lower, below = all[at-1].upper, all[at-1].count
	}
	inside := all[at].count - below
	if inside <= 0 {
		return all[at].upper, true
	}
	return lower + (all[at].upper-lower)*(rank-below)/inside, true
}

// above counts the observations over a line, as far as the buckets tell.
func above(all []bucket, line float64) float64 {
	if len(all) == 0 {
		return 0
	}
	total, under := all[len(all)-1].count, 0.0
	for _, b := range all {
		if b.upper <= line {
			under = b.count
		}
	}
	return total - under
}

// seconds prints a latency.
func seconds(value float64) string {
	if value < 1 {
		return fmt.Sprintf("%.3g ms", 1000*value)
	}
	return fmt.Sprintf("%.3g s", value)
}
