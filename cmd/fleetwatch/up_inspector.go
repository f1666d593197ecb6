package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/internal/buildinfo"
	"github.com/fleetwatch-io/fleetwatch/internal/serve"
)

// inspector inspects the fleet again and again: at the start, at every interval
// and as soon as a cluster has come or gone.
type inspector struct {
	up    *up
	store *inspect.Store
	due   chan struct{} // capacity 1

	mu     sync.Mutex // guards newest
	newest verdictRow
}

func newInspector(u *up) (*inspector, error) {
	store, err := inspect.NewStore(filepath.Join(u.cfg.dataDir, "inspections"), u.log)
	if err != nil {
		return nil, err
	}
	return &inspector{up: u, store: store, due: make(chan struct{}, 1)}, nil
}

// trigger asks for an inspection soon; it never blocks.
func (i *inspector) trigger() {
	select {
	case i.due <- struct{}{}:
	default: // one is due already
	}
}

// last is the outcome of the newest inspection of this run; empty before it.
func (i *inspector) last() verdictRow {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.newest
}

func (i *inspector) run(ctx context.Context) error {
	ticker := time.NewTicker(i.up.cfg.inspectInterval)
	defer ticker.Stop()
	i.trigger()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.due:
		case <-ticker.C:
		}
		if err := i.once(ctx); err != nil && ctx.Err() == nil {
			i.up.log.Error("inspection ended without a report", "err", err)
		}
	}
}

func (i *inspector) once(ctx context.Context) error {
	report, err := inspect.Run(ctx, inspectSources(i.up.fleet.Clusters()), inspect.Options{Version: buildinfo.Version()})
	if err != nil {
		return err
	}
	row := verdictRow{verdict: string(report.Verdict), summary: summarise(report), at: report.Finished}
	i.mu.Lock()
	i.newest = row
	i.mu.Unlock()
	return i.store.Save(report)
}

// inspectSources makes sources of the fleet; a cluster that cannot even be asked
// is one with the reason.
func inspectSources(clusters []fleet.Cluster) []inspect.Source {
	sources := make([]inspect.Source, 0, len(clusters))
	for _, c := range clusters {
		config, err := c.RESTConfig()
		sources = append(sources, inspect.Source{Name: c.ID, Config: config, Err: err})
	}
	return sources
}

// summarise puts the reasons of a verdict into one line.
func summarise(r *inspect.Report) string {
	const most = 2
	if len(r.Reasons) == 0 {
		return fmt.Sprintf("%d clusters inspected, nothing holds them back", len(r.Clusters))
	}
	line := strings.Join(r.Reasons[:min(most, len(r.Reasons))], "; ")
	if more := len(r.Reasons) - most; more > 0 {
		line += fmt.Sprintf("; and %d more", more)
	}
	return line
}

func (i *inspector) serveList(w http.ResponseWriter, _ *http.Request) {
	serve.JSON(w, http.StatusOK, list[inspect.Summary]{append([]inspect.Summary{}, i.store.List()...)})
}

func (i *inspector) serveOne(w http.ResponseWriter, r *http.Request) {
	report, err := i.store.Get(r.PathValue("id"))
	switch {
	case errors.Is(err, inspect.ErrNoReport):
		serve.Error(w, http.StatusNotFound, fmt.Errorf("%w; GET /api/v1/inspections lists them", err))
	case err != nil:
		serve.Error(w, http.StatusInternalServerError, err)
	default:
		serve.JSON(w, http.StatusOK, report)
	}
}
