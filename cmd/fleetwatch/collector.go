package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/fleet"
)

type collectorOptions struct {
	cluster, kubeconfig, context string
	listen, externalURL          string
	scrapeConfigs                []string
	interval, timeout            time.Duration
	concurrency                  int
	maxBody                      int64
	logLevel                     string
	printProfile                 bool
}

func newCollectorCommand() *cobra.Command {
	var o collectorOptions
	cmd := &cobra.Command{
		Use:   "collector",
		Short: "Discover the targets of one cluster and fetch them for the shards",
		Long: `The collector of one cluster: it discovers targets with Prometheus' Kubernetes
discovery and relabelling, publishes them at /clusters/NAME/targets, and fetches
them for the shards at /clusters/NAME/targets/ID/metrics with the credentials of
the cluster, which never leave it.

A job with 'authorization: {credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token}'
is fetched with the identity of the kubeconfig context, whatever kind it is.
No other job is.`,
		Example: `  fleetwatch collector --cluster prod-1 --kubeconfig ~/.kube/config --context prod-1
  fleetwatch collector --print-profile > profile.yml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.printProfile {
				_, err := cmd.OutOrStdout().Write(collector.Profile())
				return err
			}
			return runCollector(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.cluster, "cluster", "", "`NAME` of the cluster: the value of the label cluster on everything from it (required)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default $KUBECONFIG, else ~/.kube/config; in a pod without either, its service account)")
	f.StringVar(&o.context, "context", "", "`CONTEXT` of the kubeconfig (default its only one)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:9750", "`HOST:PORT` to serve on")
	f.StringVar(&o.externalURL, "external-url", "", "`URL` under which shards reach this collector (default http:// and the address of --listen)")
	f.StringArrayVar(&o.scrapeConfigs, "scrape-config", nil, "`FILE` with scrape_configs of your own, repeatable; a job replaces the built-in one of its name")
	f.DurationVar(&o.interval, "scrape-interval", collector.DefaultScrapeInterval, "scrape interval of jobs that do not say")
	f.DurationVar(&o.timeout, "scrape-timeout", collector.DefaultScrapeTimeout, "scrape timeout of jobs that do not say; at most the interval")
	f.IntVar(&o.concurrency, "max-concurrent-scrapes", collector.DefaultMaxConcurrentScrapes, "fetches at one time; more wait for their turn")
	f.Int64Var(&o.maxBody, "max-body-bytes", collector.DefaultMaxBodyBytes, "largest answer of a target that is passed through, as it comes over the wire")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&o.printProfile, "print-profile", false, "print the built-in scrape profile and exit")
	return cmd
}

func runCollector(ctx context.Context, o collectorOptions) error {
	log, err := newLogger(o.logLevel)
	if err != nil {
		return err
	}
	if o.cluster == "" {
		return errors.New("--cluster is required: the name that the cluster's series shall carry, such as --cluster prod-1")
	}
	collectGarbageAt(30) // a collector holds little, and there is one for each cluster
	klog.SetSlogLogger(slog.New(demoted{log.Handler()}))
	restConfig, err := collectorRESTConfig(o)
	if err != nil {
		return err
	}
	reg := newRegistry()

	server, handler, err := listenFirst(o.listen, &o.externalURL, log)
	if err != nil {
		return err
	}
	c, err := collector.New(collector.Config{
		Cluster: o.cluster, REST: restConfig, ScrapeConfigs: o.scrapeConfigs, ExternalURL: o.externalURL,
		ScrapeInterval: o.interval, ScrapeTimeout: o.timeout,
		MaxConcurrentScrapes: o.concurrency, MaxBodyBytes: o.maxBody,
		Delivered: releaseStartupMemory,
		Logger:    log, Registerer: reg,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", c.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	handler.Handler = mux
	log.Info("collector serves", "cluster", o.cluster, "address", server.Addr())

	var g group
	g.add(ctx, server.Run)
	g.add(ctx, c.Run)
	return g.runUntilSignal(ctx)
}

// collectorRESTConfig finds the way to the cluster: the kubeconfig, or the
// service account of the pod that this process runs in.
func collectorRESTConfig(o collectorOptions) (*rest.Config, error) {
	path := o.kubeconfig
	if path == "" {
		path = fleet.DefaultKubeconfig()
	}
	if path == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, errors.New("no kubeconfig: give one with --kubeconfig FILE, or run in a pod with a service account")
		}
		return cfg, nil
	}
	var contexts []string
	if o.context != "" {
		contexts = []string{o.context}
	}
	clusters, err := fleet.FromKubeconfig(path, contexts)
	if err != nil {
		return nil, err
	}
	if len(clusters) != 1 {
		return nil, fmt.Errorf("kubeconfig %s has %d contexts; choose one with --context", path, len(clusters))
	}
	return clusters[0].RESTConfig()
}

// demoted sends everything that client-go logs to debug: it repeats itself
// with every retry, and what matters reaches the log as one state change.
type demoted struct{ slog.Handler }

// Enabled lets nothing through that client-go itself holds for verbose: that
// includes headers and bodies.
func (d demoted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
