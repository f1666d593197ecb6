package app_test

import (
	"net/http/httptest"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/app"
)

func scrape(t *testing.T, c app.Config, now time.Time, start time.Time) map[string]*dto.MetricFamily {
	t.Helper()
	clock := start
	handler, err := app.Handler(c, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	clock = now
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestCountersGrowAtTheirRate(t *testing.T) {
	start := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	c := app.Config{Series: 7, Rate: 5}
	before := scrape(t, c, start, start)["demo_work_units_total"].GetMetric()
	after := scrape(t, c, start.Add(time.Minute), start)["demo_work_units_total"].GetMetric()
	if len(before) != 7 || len(after) != 7 {
		t.Fatalf("%d and %d series, want 7", len(before), len(after))
	}
	for i := range before {
		if grown := after[i].GetCounter().GetValue() - before[i].GetCounter().GetValue(); grown != 300 {
			t.Errorf("series %d grew by %g in a minute, want 300", i, grown)
		}
	}
}

func TestRestartDoesNotReset(t *testing.T) {
	start := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	c := app.Config{Series: 1, Rate: 2}
	one := scrape(t, c, start.Add(time.Hour), start)["demo_work_units_total"].GetMetric()[0].GetCounter().GetValue()
	restarted := scrape(t, c, start.Add(time.Hour), start.Add(50*time.Minute))["demo_work_units_total"].GetMetric()[0].GetCounter().GetValue()
	if one != restarted {
		t.Errorf("counter is %g, and %g after a restart", one, restarted)
	}
}
