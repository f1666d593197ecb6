package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fleetwatch-io/fleetwatch/internal/serve"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// Bounds on what is read from the network.
const (
	assignmentLimit = 256 << 20
	probeLimit      = 1 << 20
)

type handler = http.Handler

// Handler serves the Prometheus API, the shard's own, health and metrics.
func (s *Shard) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "Shard is Healthy.")
	})
	mux.HandleFunc("GET /-/ready", s.whenReady(func(w http.ResponseWriter, _ *http.Request, _ *parts) {
		fmt.Fprintln(w, "Shard is Ready.")
	}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{Registry: s.cfg.Registry}))
	mux.HandleFunc("/api/v1/", s.whenReady(func(w http.ResponseWriter, r *http.Request, p *parts) { p.prom.ServeHTTP(w, r) }))
	mux.HandleFunc("GET /fleetwatch/v1/status", s.whenReady(s.serveStatus))
	mux.HandleFunc("PUT /fleetwatch/v1/assignment", s.whenReady(s.serveAssignment))
	mux.HandleFunc("POST /fleetwatch/v1/probe", s.whenReady(s.serveProbe))
	return mux
}

// whenReady answers 503 while the shard starts or stops, as Prometheus does,
// and 507 with the reason while that is because nothing can be stored.
func (s *Shard) whenReady(next func(http.ResponseWriter, *http.Request, *parts)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := s.parts.Load()
		if p == nil {
			if full := s.storage.Load(); full != nil {
				serve.Error(w, http.StatusInsufficientStorage, full)
				return
			}
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
			return
		}
		next(w, r, p)
	}
}

func (s *Shard) serveStatus(w http.ResponseWriter, r *http.Request, p *parts) {
	f := s.inForce.Load()
	targets, err := p.statuses.collect(r.Context(), f.want)
	if err != nil {
		serve.Error(w, http.StatusInternalServerError, err)
		return
	}
	var storage string
	if full := p.guard.check(); full != nil {
		storage = full.Error()
	}
	serve.JSON(w, http.StatusOK, target.Status{
		StorageError: storage,
		Shard:        s.cfg.Name, Replica: s.cfg.Replica,
		Epoch: f.epoch, Revision: f.revision,
		HeadSeries: int64(p.db.Head().NumSeries()),
		Targets:    targets,
	})
}

func (s *Shard) serveAssignment(w http.ResponseWriter, r *http.Request, p *parts) {
	var next target.Assignment
	if err := decode(w, r, assignmentLimit, &next); err != nil {
		s.metrics.applies.WithLabelValues("invalid").Inc()
		serve.Error(w, http.StatusBadRequest, fmt.Errorf("read the assignment: %w", err))
		return
	}
	if next.Epoch < 1 {
		s.metrics.applies.WithLabelValues("invalid").Inc()
		serve.Error(w, http.StatusBadRequest, fmt.Errorf("assignment: epoch %d, want at least 1", next.Epoch))
		return
	}
	// Once kept, an assignment is put in force whether or not its sender waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.cfg.ApplyTimeout)
	defer cancel()
	start := time.Now()
	applied, err := p.assigner.apply(ctx, next)
	result, status := "applied", http.StatusOK
	if err != nil {
		result, status = "failed", http.StatusServiceUnavailable
		if _, stale := errors.AsType[*StaleError](err); stale {
			result, status = "stale", http.StatusConflict
		} else if errors.Is(err, errDisk) {
			status = http.StatusInternalServerError
		}
	}
	s.metrics.applies.WithLabelValues(result).Inc()
	if err != nil {
		s.log.Warn("assignment not in force", "epoch", next.Epoch, "revision", next.Revision, "err", err)
		serve.Error(w, status, err)
		return
	}
	s.metrics.applySeconds.Observe(time.Since(start).Seconds())
	s.metrics.lastApply.SetToCurrentTime()
	s.log.Debug("assignment in force", "epoch", next.Epoch, "revision", next.Revision,
		"targets", len(next.Targets), "duration", time.Since(start))
	serve.JSON(w, http.StatusOK, applied)
}

func (s *Shard) serveProbe(w http.ResponseWriter, r *http.Request, _ *parts) {
	var req target.ProbeRequest
	if err := decode(w, r, probeLimit, &req); err != nil {
		serve.Error(w, http.StatusBadRequest, fmt.Errorf("read the probe request: %w", err))
		return
	}
	result, err := s.prober.probe(r.Context(), req)
	if err != nil {
		serve.Error(w, http.StatusServiceUnavailable, err)
		return
	}
	serve.JSON(w, http.StatusOK, result)
}

func decode(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into); err != nil {
		return err
	}
	return nil
}
