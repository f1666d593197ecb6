package collector

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// health is what the collector knows of its way to the API server. Every
// request reports here; the log hears of a change only.
type health struct {
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	changed func() // called after the answer of problem has changed

	mu    sync.Mutex
	errs  map[string]string // what is being done -> why it does not work
	since time.Time
}

func newHealth(log *slog.Logger, m *metrics, now func() time.Time, changed func()) *health {
	return &health{log: log, now: now, metrics: m, changed: changed, errs: map[string]string{}}
}

// report records the outcome of one request; reason is empty when it worked.
func (h *health) report(what, reason string) {
	h.mu.Lock()
	before := len(h.errs)
	_, failing := h.errs[what]
	if reason == "" {
		h.metrics.lastSuccess.Set(float64(h.now().Unix()))
		delete(h.errs, what)
	} else {
		h.metrics.discoveryFailures.WithLabelValues(what).Inc()
		h.errs[what] = reason
	}
	after := len(h.errs)
	since := h.since
	if before == 0 && after > 0 {
		h.since = h.now()
	}
	h.mu.Unlock()
	if failing == (reason != "") {
		return
	}
	switch {
	case before == 0:
		h.log.Warn("discovery is degraded, the last targets stay", "reason", what+": "+reason)
	case after == 0:
		h.log.Info("discovery works again", "duration", h.now().Sub(since).Round(time.Second))
	}
	h.changed()
}

// problem says since when and why discovery is stale or incomplete; empty
// when it is not.
func (h *health) problem() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.errs) == 0 {
		return ""
	}
	what := slices.Sorted(maps.Keys(h.errs))[0]
	return "since " + h.since.UTC().Format(time.RFC3339) + ": " + what + ": " + h.errs[what]
}
