package sharder

import (
	"testing"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

func TestWeightFollowsMeasurements(t *testing.T) {
	up := func(series int64) target.TargetStatus {
		return target.TargetStatus{Health: target.HealthUp, Series: series}
	}
	for _, c := range []struct {
		name   string
		before weight
		status target.TargetStatus
		want   weight
	}{
		{"first measurement replaces an estimate", weight{900, weightFromEstimate}, up(95), weight{100, weightFromScrape}},
		{"first measurement replaces a probe", weight{110, weightFromProbe}, up(95), weight{100, weightFromScrape}},
		{"growth counts at once", weight{100, weightFromScrape}, up(995), weight{1000, weightFromScrape}},
		{"shrinkage counts by a quarter", weight{1000, weightFromScrape}, up(595), weight{900, weightFromScrape}},
		{"flutter counts not at all", weight{1000, weightFromScrape}, up(985), weight{1000, weightFromScrape}},
		{"a target that is down keeps its weight", weight{1000, weightFromScrape}, target.TargetStatus{Health: target.HealthDown, Series: 10}, weight{1000, weightFromScrape}},
		{"nothing scraped yet", weight{100, weightFromProbe}, target.TargetStatus{Health: target.HealthUp, Series: -1}, weight{100, weightFromProbe}},
	} {
		if got := c.before.observed(c.status); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	// Shrinkage ends within 2 % of the truth.
	w := weight{1_000_000, weightFromScrape}
	for range 100 {
		w = w.observed(up(0))
	}
	if w.Series != reportSeries {
		t.Errorf("a target that shows nothing any more weighs %d", w.Series)
	}
}

func TestEstimates(t *testing.T) {
	known := []sample{{"b", 5000}}
	for i := range int64(10) {
		known = append(known, sample{"a", (i + 1) * 200})
	}
	e := newEstimates(known)
	for job, want := range map[string]int64{"a": 1800, "b": 5000, "other": 1800} {
		if got := e.of(job); got != (weight{want, weightFromEstimate}) {
			t.Errorf("job %s: %+v, want %d", job, got, want)
		}
	}
	if got := newEstimates(nil).of("a"); got.Series != minWeight {
		t.Errorf("with nothing known: %+v", got)
	}
}
