package sharder

import (
	"cmp"
	"slices"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

const (
	// reportSeries is how many series the scrape itself adds to each target:
	// up, its duration, and three counts.
	reportSeries = 5
	// minWeight is the weight of a target of which nothing at all is known.
	minWeight = 100
)

// How a weight came to be known.
const (
	weightFromScrape   = "scrape"
	weightFromProbe    = "probe"
	weightFromEstimate = "estimate"
)

// weight is the head series that a target costs.
type weight struct {
	Series int64  `json:"series"`
	From   string `json:"from,omitempty"` // empty: not known yet
}

func (w weight) known() bool { return w.From != "" }

// observed takes a shard's measurement in. Growth counts at once, shrinkage by
// a quarter each time, and a change below 2 % not at all, so that a target
// that flutters does not move the plan.
func (w weight) observed(st target.TargetStatus) weight {
	if st.Health != target.HealthUp || st.Series < 0 {
		return w
	}
	now := st.Series + reportSeries
	if w.From != weightFromScrape || now > w.Series+w.Series/50 {
		return weight{Series: now, From: weightFromScrape}
	}
	if now < w.Series-w.Series/50 {
		w.Series -= max(1, (w.Series-now)/4)
	}
	return w
}

// sample is one known weight, for estimates.
type sample struct {
	job    string
	series int64
}

// estimates gives targets that cannot be measured a weight: the 90th
// percentile of their job, else the 75th of everything, else minWeight. It is
// built once from what is known.
type estimates struct {
	byJob map[string]int64
	all   int64
}

func newEstimates(known []sample) estimates {
	byJob := map[string][]int64{}
	all := make([]int64, 0, len(known))
	for _, s := range known {
		byJob[s.job] = append(byJob[s.job], s.series)
		all = append(all, s.series)
	}
	e := estimates{byJob: make(map[string]int64, len(byJob)), all: quantile(all, 75)}
	for job, series := range byJob {
		e.byJob[job] = quantile(series, 90)
	}
	return e
}

func (e estimates) of(job string) weight {
	return weight{Series: max(cmp.Or(e.byJob[job], e.all), minWeight), From: weightFromEstimate}
}

// quantile is the nearest-rank percentile; 0 of nothing. It sorts values.
func quantile(values []int64, percent int) int64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)*percent+99)/100-1]
}
