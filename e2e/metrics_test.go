package e2e

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// metricsAreClean lints what every role serves. A shard serves Prometheus' own
// metrics too, which are not ours to name.
func metricsAreClean(t *testing.T, i *instance) {
	for _, role := range []struct {
		name   string
		offset int
	}{{"fleetwatch up", 0}, {"shard-0", 10}, {"shard-1", 13}, {"collector-a", 100}, {"collector-b", 101}} {
		body, err := httpGet(t.Context(), i.url(role.offset)+"/metrics")
		if err != nil {
			t.Error(err)
			continue
		}
		problems, err := promlint.New(bytes.NewReader(body)).Lint()
		if err != nil {
			t.Errorf("%s: %v", role.name, err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "fleetwatch_") {
				t.Errorf("%s: %s: %s", role.name, p.Metric, p.Text)
			}
		}
		if !bytes.Contains(body, []byte("fleetwatch_build_info")) {
			t.Errorf("%s does not say its version", role.name)
		}
	}
}
