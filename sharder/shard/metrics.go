package shard

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// metrics are the shard's own; Prometheus' parts bring theirs.
type metrics struct {
	epoch, revision         prometheus.Gauge
	targets, invalidTargets prometheus.Gauge
	invalidPools            prometheus.Gauge
	applies                 *prometheus.CounterVec
	applySeconds            prometheus.Histogram
	lastApply               prometheus.Gauge
	probes                  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "fleetwatch", Subsystem: "shard", Name: name, Help: help})
	}
	m := &metrics{
		epoch:          gauge("assignment_epoch", "Epoch of the assignment in force."),
		revision:       gauge("assignment_revision", "Revision of the assignment in force."),
		targets:        gauge("assigned_targets", "Targets in the assignment in force."),
		invalidTargets: gauge("invalid_targets", "Assigned targets that cannot be scraped because they or their pool are invalid."),
		invalidPools:   gauge("invalid_pools", "Assigned pools whose newest configuration is invalid."),
		lastApply:      gauge("last_apply_timestamp_seconds", "When an assignment was last put in force."),
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fleetwatch", Subsystem: "shard", Name: "applies_total",
			Help: "Assignments received, by what became of them.",
		}, []string{"result"}),
		applySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "fleetwatch", Subsystem: "shard", Name: "apply_duration_seconds",
			Help:    "Time to put an assignment in force, scrapes in flight included.",
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30},
		}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fleetwatch", Subsystem: "shard", Name: "probes_total",
			Help: "Trial scrapes, by result.",
		}, []string{"result"}),
	}
	for _, result := range []string{"applied", "stale", "invalid", "failed"} {
		m.applies.WithLabelValues(result)
	}
	for _, result := range []string{"success", "failure"} {
		m.probes.WithLabelValues(result)
	}
	reg.MustRegister(m.epoch, m.revision, m.targets, m.invalidTargets, m.invalidPools,
		m.applies, m.applySeconds, m.lastApply, m.probes)
	return m
}

func (m *metrics) assigned(a target.Assignment, invalidTargets, invalidPools int) {
	m.epoch.Set(float64(a.Epoch))
	m.revision.Set(float64(a.Revision))
	m.targets.Set(float64(len(a.Targets)))
	m.invalidTargets.Set(float64(invalidTargets))
	m.invalidPools.Set(float64(invalidPools))
}
