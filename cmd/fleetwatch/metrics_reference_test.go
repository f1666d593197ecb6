package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/eventsink"
	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/buildinfo"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
	"github.com/fleetwatch-io/fleetwatch/internal/supervise"
	"github.com/fleetwatch-io/fleetwatch/sharder"
	"github.com/fleetwatch-io/fleetwatch/sharder/shard"
)

// TestReferenceMetrics keeps docs/metrics.md equal to the metrics that the
// roles register.
func TestReferenceMetrics(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# Metrics of Fleetwatch itself\n\nMade from the code by `make generate`. Every role serves `/metrics`; a shard and a collector serve Go's and the\nprocess's metrics too, and a shard those of the Prometheus that it is made of.\n")
	for _, role := range []struct {
		name, where string
		register    func(*testing.T, *describer)
	}{
		{"fleet, children, event sink, records, sharder", "`fleetwatch up`, port 9700", upMetrics},
		{"collector", "each `fleetwatch collector`, port 9800 and up", collectorMetrics},
		{"shard", "each `fleetwatch shard`, port 9710 and up", shardMetrics},
	} {
		d := &describer{metrics: map[string]string{}}
		role.register(t, d)
		fmt.Fprintf(&b, "\n## %s\n%s\n\n| metric | labels | meaning |\n|---|---|---|\n", role.name, role.where)
		for _, name := range slices.Sorted(maps.Keys(d.metrics)) {
			b.WriteString(d.metrics[name])
		}
	}
	golden(t, "metrics.md", b.Bytes())
}

func upMetrics(t *testing.T, d *describer) {
	d.MustRegister(buildinfo.Collector())
	fleet.New(fleet.Config{Registerer: d})
	supervise.New(supervise.Config{Registerer: d})
	if _, err := sharder.New(sharder.Config{
		DataDir: t.TempDir(), Sources: func() []sharder.Source { return nil },
		Shards: []sharder.ShardAddress{{Name: "shard-0", URL: "http://127.0.0.1:1"}}, Registerer: d,
	}); err != nil {
		t.Fatal(err)
	}
	store, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Registerer: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := eventsink.New(eventsink.Config{Journal: store, Registerer: d}); err != nil {
		t.Fatal(err)
	}
}

func collectorMetrics(t *testing.T, d *describer) {
	if _, err := collector.New(collector.Config{
		Cluster: "a", REST: &rest.Config{Host: "https://127.0.0.1:1"}, ExternalURL: "http://127.0.0.1:1",
		Logger: slog.New(slog.DiscardHandler), Registerer: d,
	}); err != nil {
		t.Fatal(err)
	}
}

func shardMetrics(t *testing.T, d *describer) {
	reg := prometheus.NewRegistry()
	if _, err := shard.New(shard.Config{Name: "shard-0", Replica: "0", DataDir: t.TempDir(), ExternalURL: "http://127.0.0.1:1", Registry: reg}); err != nil {
		t.Fatal(err)
	}
	d.describe(reg)
}

// describer is a Registerer that keeps what is said of each metric.
type describer struct{ metrics map[string]string }

func (d *describer) Register(c prometheus.Collector) error { d.describe(c); return nil }

func (d *describer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		d.describe(c)
	}
}

func (d *describer) Unregister(prometheus.Collector) bool { return false }

// descText is the only way to read a Desc from outside its package.
var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: (".*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (d *describer) describe(c prometheus.Collector) {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for desc := range descs {
		m := descText.FindStringSubmatch(desc.String())
		if m == nil || !strings.HasPrefix(m[1], "fleetwatch_") {
			continue
		}
		labels := m[4]
		if labels == "" {
			for constant := range strings.SplitSeq(m[3], ",") {
				name, _, _ := strings.Cut(constant, "=")
				labels = strings.TrimPrefix(labels+","+name, ",")
			}
		}
		help := strings.ReplaceAll(strings.Trim(m[2], `"`), `\"`, `"`)
		d.metrics[m[1]] = fmt.Sprintf("| `%s` | %s | %s |\n", m[1], strings.ReplaceAll(labels, ",", ", "), strings.ReplaceAll(help, "|", `\|`))
	}
}
