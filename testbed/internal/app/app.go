// Package app is a small program with metrics whose truth is known: series of
// a counter that all grow by the same number every second, counted from the
// clock, so that a restart or a missed scrape cannot falsify a rate.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config of the program.
type Config struct {
	Listen []string // addresses that all serve the same pages
	Series int      // number of series of the counter
	Rate   float64  // growth of each series a second
}

// epoch is where the counters would have been zero: the start of the day in
// which the program started, so that values stay small enough to read.
func epoch(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour) }

// truth is the collector of the known counter.
type truth struct {
	config  Config
	epoch   time.Time
	now     func() time.Time
	total   *prometheus.Desc
	rate    *prometheus.Desc
	workers []string
}

func newTruth(c Config, now func() time.Time) *truth {
	t := &truth{
		config: c, epoch: epoch(now()), now: now,
		total: prometheus.NewDesc("demo_work_units_total", "Units of work done; every series grows at demo_work_units_rate.", []string{"worker"}, nil),
		rate:  prometheus.NewDesc("demo_work_units_rate", "By how much each series of demo_work_units_total grows in a second.", nil, nil),
	}
	for i := range c.Series {
		t.workers = append(t.workers, strconv.Itoa(i))
	}
	return t
}

func (t *truth) Describe(ch chan<- *prometheus.Desc) { ch <- t.total; ch <- t.rate }

func (t *truth) Collect(ch chan<- prometheus.Metric) {
	value := t.now().Sub(t.epoch).Seconds() * t.config.Rate
	for _, w := range t.workers {
		ch <- prometheus.MustNewConstMetric(t.total, prometheus.CounterValue, value, w)
	}
	ch <- prometheus.MustNewConstMetric(t.rate, prometheus.GaugeValue, t.config.Rate)
}

// Handler serves /metrics, /healthz and a page.
func Handler(c Config, now func() time.Time) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "demo_http_requests_total", Help: "HTTP requests answered.",
	}, []string{"path", "code"})
	for _, collector := range []prometheus.Collector{
		newTruth(c, now), requests, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		requests.WithLabelValues("/", "200").Inc()
		fmt.Fprintln(w, "demo application")
	})
	return mux, nil
}

// Run serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	handler, err := Handler(c, time.Now)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	done := make(chan error, len(c.Listen))
	for _, address := range c.Listen {
		var lc net.ListenConfig
		listener, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		go func() { done <- server.Serve(listener) }()
	}
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if closeErr := server.Shutdown(stop); closeErr != nil {
		_ = server.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
