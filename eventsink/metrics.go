package eventsink

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	connected   *prometheus.GaugeVec
	received    *prometheus.CounterVec
	records     *prometheus.CounterVec
	occurrences *prometheus.CounterVec
	gaps        *prometheus.CounterVec
	undecodable *prometheus.CounterVec
	failures    *prometheus.CounterVec
	lastCommit  *prometheus.GaugeVec
	lag         *prometheus.GaugeVec
}

// clusterMetrics are the series of one cluster.
type clusterMetrics struct {
	connected   prometheus.Gauge
	received    prometheus.Counter
	records     prometheus.Counter
	occurrences prometheus.Counter
	gaps        prometheus.Counter
	undecodable prometheus.Counter
	failures    map[string]prometheus.Counter
	lastCommit  prometheus.Gauge
	lag         prometheus.Gauge
}

// newMetrics registers with reg, or nowhere when it is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Name: "fleetwatch_eventsink_" + name, Help: help}, []string{"cluster"})
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: "fleetwatch_eventsink_" + name, Help: help}, append([]string{"cluster"}, more...))
	}
	return &metrics{
		connected:   gauge("connected", "1 while the watch of the cluster's events is running."),
		received:    counter("received_events_total", "Versions of events received by lists and watches."),
		records:     counter("records_total", "Records made durable that were not stored before."),
		occurrences: counter("occurrences_total", "Occurrences in the batches made durable, replays included."),
		gaps:        counter("gaps_total", "Times in which events may have been missed."),
		undecodable: counter("undecodable_events_total", "Events that could not be decoded and were left out."),
		failures:    counter("session_ends_total", "Ends of lists and watches by reason; each is followed by another try.", "reason"),
		lastCommit:  gauge("last_commit_timestamp_seconds", "Time at which a batch or a position last became durable."),
		lag:         gauge("lag_seconds", "Time from the arrival of the last batch to its being durable."),
	}
}

func (m *metrics) of(cluster string) *clusterMetrics {
	c := &clusterMetrics{
		connected:   m.connected.WithLabelValues(cluster),
		received:    m.received.WithLabelValues(cluster),
		records:     m.records.WithLabelValues(cluster),
		occurrences: m.occurrences.WithLabelValues(cluster),
		gaps:        m.gaps.WithLabelValues(cluster),
		undecodable: m.undecodable.WithLabelValues(cluster),
		failures:    map[string]prometheus.Counter{},
		lastCommit:  m.lastCommit.WithLabelValues(cluster),
		lag:         m.lag.WithLabelValues(cluster),
	}
	for _, r := range reasons() {
		c.failures[r] = m.failures.WithLabelValues(cluster, r)
	}
	return c
}
