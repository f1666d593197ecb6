package sharder

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	targets       *prometheus.GaugeVec // by state
	headSeries    *prometheus.GaugeVec // by shard
	shardWeight   *prometheus.GaugeVec
	shardTargets  *prometheus.GaugeVec
	shardUp       *prometheus.GaugeVec
	missingShards prometheus.Gauge
	epoch         prometheus.Gauge
	moves         *prometheus.CounterVec // by result
	errors        *prometheus.CounterVec // by reason
	cycleSeconds  prometheus.Histogram
	lastCycle     prometheus.Gauge
	lastSuccess   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, shards []*shardState) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "fleetwatch", Subsystem: "sharder", Name: name, Help: help})
	}
	gauges := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "fleetwatch", Subsystem: "sharder", Name: name, Help: help}, []string{label})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fleetwatch", Subsystem: "sharder", Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		targets:       gauges("targets", "Targets by state: assigned (moving ones included), unassigned, moving.", "state"),
		headSeries:    gauges("shard_head_series", "Series in the head of a shard.", "shard"),
		shardWeight:   gauges("shard_weight_series", "Sum of the weights of a shard's targets.", "shard"),
		shardTargets:  gauges("shard_targets", "Targets placed on a shard.", "shard"),
		shardUp:       gauges("shard_up", "Whether a shard answers: 1 or 0.", "shard"),
		missingShards: gauge("missing_shards", "How many more shards the targets want."),
		epoch:         gauge("epoch", "Epoch of this sharder."),
		moves:         counters("moves_total", "Hand-overs of a target between shards, by result.", "result"),
		errors:        counters("errors_total", "Errors in cycles and moves, by reason.", "reason"),
		cycleSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "fleetwatch", Subsystem: "sharder", Name: "cycle_duration_seconds",
			Help: "Time of one cycle.", Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30},
		}),
		lastCycle:   gauge("last_cycle_timestamp_seconds", "When the last cycle began."),
		lastSuccess: gauge("last_success_timestamp_seconds", "When the last cycle without an error began."),
	}
	for _, state := range []string{StateAssigned, StateUnassigned, StateMoving} {
		m.targets.WithLabelValues(state)
	}
	for _, result := range []string{"moved", "failed"} {
		m.moves.WithLabelValues(result)
	}
	for _, reason := range []string{reasonList, reasonStatus, reasonProbe, reasonApply, reasonFenced, reasonMove, reasonDisk} {
		m.errors.WithLabelValues(reason)
	}
	for _, sh := range shards {
		for _, vec := range []*prometheus.GaugeVec{m.headSeries, m.shardWeight, m.shardTargets, m.shardUp} {
			vec.WithLabelValues(sh.name)
		}
	}
	reg.MustRegister(m.targets, m.headSeries, m.shardWeight, m.shardTargets, m.shardUp, m.missingShards, m.epoch,
		m.moves, m.errors, m.cycleSeconds, m.lastCycle, m.lastSuccess)
	return m
}

func (m *metrics) cycleDone(c CycleView) {
	m.cycleSeconds.Observe(c.Duration.Seconds())
	m.lastCycle.Set(float64(c.Time.UnixMilli()) / 1000)
	if len(c.Errors) == 0 {
		m.lastSuccess.Set(float64(c.Time.UnixMilli()) / 1000)
	}
}

func (m *metrics) observe(v *Snapshot) {
	m.targets.WithLabelValues(StateAssigned).Set(float64(v.Assigned))
	m.targets.WithLabelValues(StateUnassigned).Set(float64(v.Unassigned))
	m.targets.WithLabelValues(StateMoving).Set(float64(v.Moving))
	m.missingShards.Set(float64(v.MissingShards))
	m.epoch.Set(float64(v.Epoch))
	for _, sh := range v.Shards {
		m.headSeries.WithLabelValues(sh.Name).Set(float64(sh.HeadSeries))
		m.shardWeight.WithLabelValues(sh.Name).Set(float64(sh.Weight))
		m.shardTargets.WithLabelValues(sh.Name).Set(float64(sh.Targets))
		up := 0.0
		if sh.Up {
			up = 1
		}
		m.shardUp.WithLabelValues(sh.Name).Set(up)
	}
}
