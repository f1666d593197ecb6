package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/sharder/shard"
)

type shardOptions struct {
	name, replica       string
	dataDir             string
	listen, externalURL string
	retention           time.Duration
	stripeSize          int
	queryConcurrency    int
	queryMaxSamples     int
	queryTimeout        time.Duration
	logLevel            string
}

func newShardCommand() *cobra.Command {
	var o shardOptions
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "Scrape and store a share of the fleet's targets, as a Prometheus",
		Long: `One shard of the fleet: a Prometheus whose targets are assigned by the sharder
instead of discovered. It serves the Prometheus HTTP API, so that thanos sidecar,
Grafana and promtool take it for a Prometheus; its external labels are shard and
replica. The series are in DIR/tsdb, which is the sidecar's --tsdb.path.

The last assignment is kept in DIR: with the sharder down, or after a restart,
scraping goes on.`,
		Example: `  fleetwatch shard --name shard-0 --replica 0 --data-dir /var/lib/fleetwatch/shard-0 --listen 127.0.0.1:9710
  thanos sidecar --prometheus.url http://127.0.0.1:9710 --tsdb.path /var/lib/fleetwatch/shard-0/tsdb`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runShard(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "`NAME` of the shard: its external label shard (required)")
	f.StringVar(&o.replica, "replica", "0", "external label replica of the shard")
	f.StringVar(&o.dataDir, "data-dir", "", "`DIR` for the series and the assignment (required)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:9710", "`HOST:PORT` to serve on")
	f.StringVar(&o.externalURL, "external-url", "", "`URL` under which others reach the shard (default http:// and the address of --listen)")
	f.DurationVar(&o.retention, "retention", 6*time.Hour, "keep series on disk for this long, at least 2h")
	f.IntVar(&o.stripeSize, "stripe-size", 0, "hash stripes of the head, a power of two (default 16384; 512 saves memory in a shard of some thousand series)")
	f.IntVar(&o.queryConcurrency, "query-concurrency", 20, "queries at one time; more wait for their turn")
	f.IntVar(&o.queryMaxSamples, "query-max-samples", 50_000_000, "most samples that one query may hold in memory")
	f.DurationVar(&o.queryTimeout, "query-timeout", 2*time.Minute, "longest time of one query")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func runShard(ctx context.Context, o shardOptions) error {
	log, err := newLogger(o.logLevel)
	if err != nil {
		return err
	}
	if o.name == "" {
		return errors.New("--name is required: the value of the external label shard, such as --name shard-0")
	}
	if o.dataDir == "" {
		return errors.New("--data-dir is required: a folder of this shard's own, such as --data-dir ./shard-0")
	}
	collectGarbageAt(75) // as Prometheus does: most of the heap is alive for hours
	reg := newRegistry()

	server, handler, err := listenFirst(o.listen, &o.externalURL, log)
	if err != nil {
		return err
	}
	s, err := shard.New(shard.Config{
		Name: o.name, Replica: o.replica, DataDir: o.dataDir, ExternalURL: o.externalURL,
		Retention: o.retention, StripeSize: o.stripeSize,
		QueryConcurrency: o.queryConcurrency, QueryMaxSamples: o.queryMaxSamples, QueryTimeout: o.queryTimeout,
		Logger: log, Registry: reg,
	})
	if err != nil {
		return err
	}
	handler.Handler = s.Handler()
	log.Info("shard serves", "shard", o.name, "address", server.Addr())

	var g group
	g.add(ctx, server.Run)
	g.add(ctx, s.Run)
	return g.runUntilSignal(ctx)
}
