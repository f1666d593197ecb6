package collector

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	targets           *prometheus.GaugeVec
	synced            prometheus.Gauge
	lastSuccess       prometheus.Gauge
	lastBuild         prometheus.Gauge
	discoveryFailures *prometheus.CounterVec
	discoveryEvents   *prometheus.CounterVec
	relabelFailures   *prometheus.CounterVec
	requests          *prometheus.CounterVec
	bytes             *prometheus.CounterVec
	duration          *prometheus.HistogramVec
	inFlight          prometheus.Gauge
	waiting           prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		targets: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleetwatch_collector_targets",
			Help: "Targets in the published list.",
		}, []string{"job"}),
		synced: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_collector_discovery_synced",
			Help: "1 once every discovery has delivered since the start.",
		}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_collector_discovery_last_success_timestamp_seconds",
			Help: "When a request to the API server last succeeded.",
		}),
		lastBuild: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_collector_list_last_build_timestamp_seconds",
			Help: "When the target list was last put together.",
		}),
		discoveryFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_collector_discovery_failures_total",
			Help: "Requests to the API server that failed, by what they were for.",
		}, []string{"request"}),
		discoveryEvents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_collector_discovery_events_total",
			Help: "Object changes that discovery handled.",
		}, []string{"role", "event"}),
		relabelFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_collector_relabel_failures_total",
			Help: "Discovered endpoints that relabelling left without a usable address, interval or label.",
		}, []string{"job"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_collector_gateway_requests_total",
			Help: "Fetches through the scrape gateway by outcome; ok is a complete answer with status 200.",
		}, []string{"job", "reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetwatch_collector_gateway_response_bytes_total",
			Help: "Bytes of target answers passed through, as they came over the wire.",
		}, []string{"job"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fleetwatch_collector_gateway_request_duration_seconds",
			Help:    "Time from the request of a shard to the last byte for it.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"job"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_collector_gateway_in_flight_requests",
			Help: "Fetches that are under way.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetwatch_collector_gateway_waiting_requests",
			Help: "Fetches that wait for their turn because the concurrency limit is reached.",
		}),
	}
	for _, c := range []prometheus.Collector{
		m.targets, m.synced, m.lastSuccess, m.lastBuild, m.discoveryFailures, m.discoveryEvents,
		m.relabelFailures, m.requests, m.bytes, m.duration, m.inFlight, m.waiting,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// initJobs zero-initialises what is known of the jobs, so that rates begin at 0.
func (m *metrics) initJobs(jobs []*job) {
	for _, j := range jobs {
		m.targets.WithLabelValues(j.name)
		m.relabelFailures.WithLabelValues(j.name)
		m.bytes.WithLabelValues(j.name)
		m.duration.WithLabelValues(j.name)
		for _, r := range reasons {
			m.requests.WithLabelValues(j.name, string(r))
		}
	}
	m.requests.WithLabelValues("", string(reasonUnknownTarget))
}
