package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
	"github.com/fleetwatch-io/fleetwatch/internal/serve"
	"github.com/fleetwatch-io/fleetwatch/internal/supervise"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder"
)

// api is the HTTP face of `fleetwatch up`. Until open, everything but /healthz
// and /metrics answers 503, since nothing behind it is there yet.
type api struct {
	up     *up
	mux    *http.ServeMux
	isOpen atomic.Bool
	// ready latches: once all that the screen says was true, Fleetwatch is up.
	ready atomic.Bool
	// done ends streams of events when we stop.
	done chan struct{}
}

// list is the answer of every list request.
type list[T any] struct {
	Items []T `json:"items"`
}

// clusterItem is one cluster of GET /api/v1/clusters.
type clusterItem struct {
	ID          string       `json:"id"`
	Alias       string       `json:"alias"`
	Environment string       `json:"environment"`
	Server      string       `json:"server"`
	Status      fleet.Status `json:"status"`
	// TargetsUp of TargetsExpected targets are up.
	TargetsUp       int `json:"targets_up"`
	TargetsExpected int `json:"targets_expected"`
	// EventsError is why events of the cluster are not coming in, if so.
	EventsError string `json:"events_error,omitempty"`
}

func newAPI(u *up) *api {
	a := &api{up: u, mux: http.NewServeMux(), done: make(chan struct{})}
	handle := func(pattern string, handler http.HandlerFunc) {
		a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !a.isOpen.Load() {
				serve.Error(w, http.StatusServiceUnavailable, errors.New("Fleetwatch is starting")) //nolint:staticcheck // a name
				return
			}
			handler(w, r)
		})
	}
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(u.reg, promhttp.HandlerOpts{Registry: u.reg}))
	handle("GET /readyz", a.readyz)
	handle("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		u.view().render(w)
	})
	handle("GET /api/v1/clusters", func(w http.ResponseWriter, _ *http.Request) {
		serve.JSON(w, http.StatusOK, list[clusterItem]{u.clusterItems()})
	})
	handle("GET /api/v1/shards", func(w http.ResponseWriter, _ *http.Request) {
		serve.JSON(w, http.StatusOK, list[sharder.ShardView]{u.sharder.Snapshot().Shards})
	})
	handle("GET /api/v1/targets", a.targets)
	handle("POST /api/v1/targets/{id}/move", a.move)
	handle("GET /api/v1/children", func(w http.ResponseWriter, _ *http.Request) {
		serve.JSON(w, http.StatusOK, list[supervise.Child]{u.children.Children()})
	})
	handle("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
		store.Handler(u.store, a.done).ServeHTTP(w, r)
	})
	handle("GET /report", func(w http.ResponseWriter, r *http.Request) { u.inspector.serveReport(w, r) })
	handle("GET /api/v1/inspections", func(w http.ResponseWriter, r *http.Request) { u.inspector.serveList(w, r) })
	handle("GET /api/v1/inspections/{id}", func(w http.ResponseWriter, r *http.Request) { u.inspector.serveOne(w, r) })
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		serve.Error(w, http.StatusNotFound, fmt.Errorf("no %s %s; there are GET /, /report, /healthz, /readyz, /metrics and /api/v1/{clusters,targets,shards,events,inspections,children}", r.Method, r.URL.Path))
	})
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

func (a *api) open() { a.isOpen.Store(true) }

// close ends streams, so that the server can drain.
func (a *api) close() { close(a.done) }

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready.Load() {
		serve.Error(w, http.StatusServiceUnavailable, errors.New("not all that the screen shows is true yet"))
		return
	}
	fmt.Fprintln(w, "ok")
}

// targets answers with the targets that match every given parameter of cluster,
// job, shard, state and health.
func (a *api) targets(w http.ResponseWriter, r *http.Request) {
	want := r.URL.Query()
	for name := range want {
		if !slices.Contains([]string{"cluster", "job", "shard", "state", "health"}, name) {
			serve.Error(w, http.StatusBadRequest, fmt.Errorf("no parameter %q; there are cluster, job, shard, state and health", name))
			return
		}
	}
	for name, known := range a.known() {
		if want.Has(name) && !slices.Contains(known, want.Get(name)) {
			serve.Error(w, http.StatusBadRequest, fmt.Errorf("no %s %q; there are %s", name, want.Get(name), strings.Join(known, ", ")))
			return
		}
	}
	matches := func(name, value string) bool { return !want.Has(name) || want.Get(name) == value }
	items := []sharder.TargetView{}
	for _, t := range a.up.sharder.Snapshot().Targets {
		if matches("cluster", t.Cluster) && matches("job", t.Job) && matches("shard", t.Shard) && matches("state", t.State) && matches("health", t.Health) {
			items = append(items, t)
		}
	}
	slices.SortFunc(items, func(x, y sharder.TargetView) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Job, y.Job), cmp.Compare(x.Labels["instance"], y.Labels["instance"]), cmp.Compare(x.ID, y.ID))
	})
	serve.JSON(w, http.StatusOK, list[sharder.TargetView]{items})
}

// known are the values that make sense of the parameters that have few.
func (a *api) known() map[string][]string {
	known := map[string][]string{
		"state":  {sharder.StateAssigned, sharder.StateUnassigned, sharder.StateMoving},
		"health": {target.HealthUp, target.HealthDown, target.HealthUnknown},
	}
	for _, c := range a.up.fleet.Clusters() {
		known["cluster"] = append(known["cluster"], c.ID)
	}
	for _, s := range a.up.sharder.Snapshot().Shards {
		known["shard"] = append(known["shard"], s.Name)
	}
	return known
}

// moveTimeout bounds a move, the destination's first scrape included.
const moveTimeout = 3 * time.Minute

// moved is the answer to a move; Already says that there was nothing to do.
type moved struct {
	Target  string `json:"target"`
	Shard   string `json:"shard"`
	Already bool   `json:"already_there"`
}

func (a *api) move(w http.ResponseWriter, r *http.Request) {
	shard := r.URL.Query().Get("shard")
	if shard == "" {
		serve.Error(w, http.StatusBadRequest, errors.New("say where to: ?shard=NAME"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), moveTimeout)
	defer cancel()
	err := a.up.sharder.Move(ctx, r.PathValue("id"), shard)
	switch {
	case err == nil:
		serve.JSON(w, http.StatusOK, moved{r.PathValue("id"), shard, false})
	case errors.Is(err, sharder.ErrAlreadyThere):
		serve.JSON(w, http.StatusOK, moved{r.PathValue("id"), shard, true})
	case errors.Is(err, sharder.ErrUnknownTarget), errors.Is(err, sharder.ErrUnknownShard):
		serve.Error(w, http.StatusNotFound, err)
	case ctx.Err() != nil:
		serve.Error(w, http.StatusGatewayTimeout, err)
	default:
		serve.Error(w, http.StatusConflict, err)
	}
}
