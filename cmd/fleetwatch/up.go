package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"

	"github.com/fleetwatch-io/fleetwatch/eventsink"
	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
	"github.com/fleetwatch-io/fleetwatch/internal/serve"
	"github.com/fleetwatch-io/fleetwatch/internal/supervise"
	"github.com/fleetwatch-io/fleetwatch/sharder"
)

func newUpCommand() *cobra.Command {
	var cfg upConfig
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine until Ctrl-C",
		Long: `Run everything on this machine until Ctrl-C: a collector for each cluster, the
shards and their sharder, Thanos sidecars and Thanos Query, the event sink and
the inspection.

The clusters are the contexts of --kubeconfig or $KUBECONFIG. With neither, a
testbed of real clusters is started first. Everything listens on loopback; all
data is under --data-dir, and the next start goes on with it.

A kubeconfig context may tell its environment:

  contexts:
  - name: prod-eu
    context:
      cluster: prod-eu
      user: viewer
      extensions:
      - name: fleetwatch.io/cluster
        extension: {environment: production}`,
		Example: `  # a testbed of two clusters
  fleetwatch up

  # two contexts of your kubeconfig, more room for series
  fleetwatch up --kubeconfig ~/.kube/config --context prod-eu --context prod-us --shard-capacity 1000000

  # a second one beside the first
  fleetwatch up --data-dir /var/lib/fleetwatch-2 --port-base 19700`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUp(cmd.Context(), cfg, cmd.OutOrStdout()) },
	}
	cfg.register(cmd.Flags())
	return cmd
}

// up is the embedded Fleetwatch while it runs:
//
//	kubeconfig --> fleet --> collector (child) for each cluster
//	                 |            | targets       ^ scrapes
//	                 |            v               |
//	                 |         sharder ------> shard (child) --> sidecar (child) --> query (child)
//	                 +--> event sink --> store
//	                 +--> inspector --> reports
type up struct {
	cfg      upConfig
	programs programs
	log      *slog.Logger
	reg      *prometheus.Registry
	progress *progress
	stack    *stack

	children   *supervise.Supervisor
	fleet      *fleet.Registry
	sharder    *sharder.Sharder
	store      *embedded.Store
	events     *eventsink.Sink
	inspector  *inspector
	query      *queryClient
	api        *api
	collectors map[string]string // cluster ID -> URL
}

func runUp(ctx context.Context, cfg upConfig, out io.Writer) error {
	if err := cfg.complete(); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	programs, err := findPrograms(cfg.binDir, cfg.kubeconfig == "")
	if err != nil {
		return err
	}
	lock, err := lockDataDir(cfg.dataDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	logFile := &lumberjack.Logger{Filename: filepath.Join(cfg.dataDir, "logs", "fleetwatch.log"), MaxSize: 10, MaxBackups: 1}
	defer func() { _ = logFile.Close() }() // the log itself: nowhere to report to
	log, err := newLoggerTo(logFile, cfg.logLevel)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)

	// From the first signal on we stop in order; a second one ends us at once.
	ctx, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	context.AfterFunc(ctx, release)

	reg := newRegistry()
	u := &up{
		cfg: cfg, programs: programs, log: log, reg: reg,
		progress: newProgress(out),
		stack:    newStack(ctx),
		children: supervise.New(supervise.Config{LogDir: filepath.Join(cfg.dataDir, "logs"), Logger: log, Registerer: reg}),
		query:    newQueryClient(cfg.url(cfg.ports.query)),
	}
	u.api = newAPI(u)
	server, err := serve.Listen(cfg.hostPort(cfg.ports.fleetwatch), "--http-port or --port-base", u.api, log)
	if err != nil {
		return err
	}
	front := newStack(ctx) // the front door closes before anything behind it
	front.start(server.Run)
	err = u.run(ctx, out)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil // asked to stop
	}
	u.shutDown(front)
	return err
}

// shutDown ends everything in order and says so when there is much to end.
func (u *up) shutDown(front *stack) {
	started := len(u.children.Children()) > 0
	if started {
		u.progress.line("stopping; Ctrl-C again ends everything at once")
	}
	u.api.close()
	front.stop()
	u.stack.stop()
	if started {
		u.progress.line("stopped; the data is in %s", u.cfg.dataDir)
	}
}

// run starts everything in stages, each of which needs the one before, and then
// shows the screen until ctx ends or something that must not end has ended.
func (u *up) run(ctx context.Context, out io.Writer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		select {
		case err := <-u.stack.failed:
			fail(err)
		case <-ctx.Done():
		}
	}()
	u.stack.start(u.children.Serve)
	for _, stage := range []func(context.Context) error{
		u.startFleet,
		u.startMetricsPath,
		u.startRecordsPath,
		func(context.Context) error {
			u.stack.start(u.inspector.run)
			u.api.open()
			return nil
		},
		u.awaitTruth,
	} {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return newScreen(out, u.view).run(ctx)
}

// startFleet reads the kubeconfig, after starting the testbed when there is none.
func (u *up) startFleet(ctx context.Context) error {
	kubeconfig := u.cfg.kubeconfig
	if kubeconfig == "" {
		if err := u.startTestbed(ctx); err != nil {
			return err
		}
		kubeconfig = u.cfg.testbedKubeconfig()
	}
	clusters, err := u.cfg.clusters(kubeconfig)
	if err != nil {
		return err
	}
	if err := u.cfg.checkPorts(len(clusters)); err != nil {
		return err
	}
	u.fleet = fleet.New(fleet.Config{
		Clusters: clusters, Logger: u.log, Registerer: u.reg,
		Changed: func(fleet.Cluster, fleet.Status) { u.inspector.trigger() },
	})
	if u.inspector, err = newInspector(u); err != nil {
		return err
	}
	u.stack.start(u.fleet.Run)
	return u.progress.await(ctx, fmt.Sprintf("fleet (%d clusters)", len(clusters)), 200*time.Millisecond, func(context.Context) (bool, string) {
		var missing []string
		for _, c := range clusters {
			if u.fleet.Status(c.ID).State == fleet.StatePending {
				missing = append(missing, "an answer of cluster "+c.ID)
			}
		}
		return len(missing) == 0, strings.Join(missing, ", ")
	})
}

// ownTime is the time that the testbed puts before a line of its progress.
var ownTime = regexp.MustCompile(`^ *[0-9.]+s +`)

func (u *up) startTestbed(ctx context.Context) error {
	u.progress.line("no kubeconfig given: starting a testbed of %d clusters with %d simulated nodes each", u.cfg.testbedClusters, u.cfg.testbedNodes)
	ready := make(chan struct{}, 1)
	spec := u.cfg.testbedSpec(u.programs, func(line string) {
		if line = strings.TrimPrefix(ownTime.ReplaceAllString(line, ""), "testbed: "); !strings.HasPrefix(line, "ready after") {
			u.progress.line("testbed: %s", line)
		}
		if strings.HasPrefix(line, "kubeconfig: ") { // its last word once all is up
			select {
			case ready <- struct{}{}:
			default:
			}
		}
	})
	u.stack.start(func(ctx context.Context) error { return u.children.Run(ctx, spec) })
	return u.progress.await(ctx, "testbed", time.Second, func(context.Context) (bool, string) {
		select {
		case <-ready:
			return true, ""
		default:
		}
		for _, c := range u.children.Children() {
			if c.Name == "testbed" && c.LastExit != "" {
				return false, "its restart, since it ended: " + c.LastExit
			}
		}
		return false, "its clusters"
	})
}

// startMetricsPath starts collectors, shards, sidecars, Thanos Query and the
// sharder. They are stopped in the opposite order.
func (u *up) startMetricsPath(context.Context) error {
	var collecting, sharding, sidecars []func(context.Context) error
	child := func(spec supervise.Spec) func(context.Context) error {
		return func(ctx context.Context) error { return u.children.Run(ctx, spec) }
	}
	u.collectors = map[string]string{}
	for i, c := range u.fleet.Clusters() {
		if _, err := c.RESTConfig(); err != nil {
			continue // a collector would only die of it over and over
		}
		u.collectors[c.ID] = u.cfg.url(u.cfg.collectorPort(i))
		collecting = append(collecting, child(u.cfg.collectorSpec(u.programs, i, c)))
	}
	for i := range u.cfg.shards {
		sharding = append(sharding, child(u.cfg.shardSpec(u.programs, i)))
		sidecars = append(sidecars, child(u.cfg.sidecarSpec(u.programs, i)))
	}
	endpoints, err := u.cfg.writeEndpoints()
	if err != nil {
		return err
	}
	if u.sharder, err = u.newSharder(); err != nil {
		return err
	}
	u.progress.line("starting %d collectors, %d shards with sidecars, Thanos Query", len(collecting), len(sharding))
	u.stack.start(collecting...)
	u.stack.start(sharding...)
	u.stack.start(sidecars...)
	u.stack.start(child(u.cfg.querySpec(u.programs, endpoints)))
	u.stack.start(u.sharder.Run)
	return nil
}
