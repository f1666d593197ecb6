package embedded

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	records     prometheus.Counter
	failures    prometheus.Counter
	expired     *prometheus.CounterVec
	removed     *prometheus.CounterVec
	bytes       prometheus.Gauge
	quarantined prometheus.Gauge
	lastCommit  prometheus.Gauge
	duration    prometheus.Histogram
}

// newMetrics registers with reg, or nowhere when it is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		records: f.NewCounter(prometheus.CounterOpts{
			Name: "fleetwatch_recordstore_records_total", Help: "Records stored, those already there not counted.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Name: "fleetwatch_recordstore_commit_failures_total", Help: "Commits that failed; they are tried again.",
		}),
		expired: f.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_recordstore_expired_records_total", Help: "Records not stored because they are older than the retention.",
		}, []string{"cluster"}),
		removed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_recordstore_removed_files_total", Help: "Day files removed by retention.",
		}, []string{"reason"}),
		bytes: f.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_recordstore_size_bytes", Help: "Size of the day files.",
		}),
		quarantined: f.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_recordstore_quarantined_files", Help: "Corrupt files that were moved aside.",
		}),
		lastCommit: f.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_recordstore_last_commit_timestamp_seconds", Help: "Time of the last successful commit.",
		}),
		duration: f.NewHistogram(prometheus.HistogramOpts{
			Name: "fleetwatch_recordstore_commit_duration_seconds", Help: "Duration of the commits, fsync included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 9),
		}),
	}
	m.removed.WithLabelValues("age")
	m.removed.WithLabelValues("bytes")
	return m
}

func (m *metrics) committed(d time.Duration) {
	m.duration.Observe(d.Seconds())
	m.lastCommit.SetToCurrentTime()
}
