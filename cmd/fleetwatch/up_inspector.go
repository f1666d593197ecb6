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
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/render"
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

// summarise puts a verdict into one line: each cluster that is not GO, with the
// checks that hold it back, or the reason why it is not known.
func summarise(r *inspect.Report) string {
	const most = 4
	var held []string
	for _, c := range r.Clusters {
		if c.Verdict == inspect.Go {
			continue
		}
		why := gatingFailures(c)
		if len(why) == 0 {
			why = c.Reasons
		}
		held = append(held, fmt.Sprintf("%s is %s: %s", c.Cluster, c.Verdict, strings.Join(why, ", ")))
	}
	if len(held) == 0 {
		return fmt.Sprintf("nothing holds back any of %d clusters", len(r.Clusters))
	}
	line := strings.Join(held[:min(most, len(held))], "; ")
	if more := len(held) - most; more > 0 {
		line += fmt.Sprintf("; and %d more clusters", more)
	}
	return line
}

// gatingFailures are the IDs of the critical and high checks that failed.
func gatingFailures(c inspect.ClusterReport) []string {
	var ids []string
	for _, result := range c.Results {
		if result.Status == checks.Fail && (result.Severity == checks.Critical || result.Severity == checks.High) {
			ids = append(ids, result.Check)
		}
	}
	return ids
}

// serveReport shows the newest report of this run or an earlier one to people.
func (i *inspector) serveReport(w http.ResponseWriter, _ *http.Request) {
	newest, ok := i.store.Latest()
	if !ok {
		serve.Error(w, http.StatusNotFound, errors.New("no inspection has ended yet; try again in a moment"))
		return
	}
	report, err := i.store.Get(newest.ID)
	if err != nil {
		serve.Error(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = render.Write(w, "html", report, false) // the client is gone: nobody left to tell
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
