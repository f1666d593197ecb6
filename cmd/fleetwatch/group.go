package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fleetwatch-io/fleetwatch/internal/buildinfo"
	"github.com/fleetwatch-io/fleetwatch/internal/serve"
)

// group is a run.Group whose actors stop one by one in the order in which
// they were added, front doors first; see the contributing guide.
type group struct{ run.Group }

// add runs fn with a context that survives the parent's cancellation: the
// group cuts it when its turn comes and waits until fn has returned.
func (g *group) add(ctx context.Context, fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	g.Add(
		func() error { defer close(done); return fn(ctx) },
		func(error) { cancel(); <-done },
	)
}

// runUntilSignal runs the group until an actor returns, or SIGINT or SIGTERM
// arrives; the signal is no error.
func (g *group) runUntilSignal(ctx context.Context) error {
	g.Add(run.SignalHandler(ctx, os.Interrupt, syscall.SIGTERM))
	if err := g.Run(); err != nil && !errors.Is(err, run.ErrSignal) {
		return err
	}
	return nil
}

// newRegistry returns a registry with the metrics that every role has.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(buildinfo.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// collectGarbageAt sets the garbage collector's percentage, below Go's default
// of 100 for roles whose memory counts more than a little CPU. $GOGC wins.
func collectGarbageAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// newLogger logs text at the given level (debug, info, warn or error) to stderr.
func newLogger(level string) (*slog.Logger, error) { return newLoggerTo(os.Stderr, level) }

func newLoggerTo(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, errors.New("--log-level: want debug, info, warn or error, got " + level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// switchHandler is set once, before the server runs.
type switchHandler struct{ http.Handler }

// listenFirst binds a role's port before the role is made, which wants to know
// its own URL: externalURL is filled in unless it is given. The caller sets the
// handler before the server runs.
func listenFirst(address string, externalURL *string, log *slog.Logger) (*serve.Server, *switchHandler, error) {
	handler := &switchHandler{}
	server, err := serve.Listen(address, "--listen", handler, log)
	if err != nil {
		return nil, nil, err
	}
	if *externalURL == "" {
		*externalURL = "http://" + server.Addr()
	}
	return server, handler, nil
}
