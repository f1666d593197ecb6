package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/buildinfo"
)

// Defaults of a Config.
const (
	DefaultScrapeInterval       = 30 * time.Second
	DefaultScrapeTimeout        = 10 * time.Second
	DefaultMaxConcurrentScrapes = 512
	DefaultMaxBodyBytes         = 256 << 20
)

const (
	// settle is how long changes are gathered before a list is made of them.
	settle = 500 * time.Millisecond
	// The probe notices an API server that hangs with its connections open.
	probeInterval = 10 * time.Second
	probeTimeout  = 5 * time.Second
)

// Config is what New needs. Zero numbers and durations mean the defaults.
type Config struct {
	// Cluster is the value of the `cluster` label and part of every URL.
	Cluster string
	// REST is the way to the cluster and the identity in it.
	REST *rest.Config
	// ScrapeConfigs are files of the user, on top of the built-in profile.
	ScrapeConfigs []string
	// ExternalURL is where shards reach Handler, such as http://10.1.2.3:9750.
	ExternalURL string
	// ScrapeInterval and ScrapeTimeout apply to jobs that do not say.
	ScrapeInterval, ScrapeTimeout time.Duration
	MaxConcurrentScrapes          int
	MaxBodyBytes                  int64
	// Delivered, when set, is called once discovery has delivered: from then
	// on the process needs much less memory than it took to get there.
	Delivered  func()
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Collector discovers the targets of one cluster and fetches them for shards.
type Collector struct {
	cluster     string
	server      string
	externalURL string
	log         *slog.Logger
	metrics     *metrics
	client      kubernetes.Interface
	jobs        []*job
	providers   []*provider
	informers   *informers
	health      *health
	found       *found
	gateway     *gateway
	published   atomic.Pointer[snapshot]
	delivered   func()
	trigger     chan struct{} // capacity 1, never closed: the list is out of date
}

var clusterName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// New reads the scrape configurations and makes a Collector. It makes no
// request and starts nothing.
func New(cfg Config) (*Collector, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	configs, err := loadScrapeConfigs(cfg.ScrapeConfigs, scrapeDefaults{interval: cfg.ScrapeInterval, timeout: cfg.ScrapeTimeout})
	if err != nil {
		return nil, err
	}
	jobs, err := newJobs(cfg.Cluster, configs, cfg.REST)
	if err != nil {
		return nil, err
	}
	client, err := newClient(cfg.Cluster, cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("make a client of cluster %s: %w", cfg.Cluster, err)
	}
	m, err := newMetrics(prometheus.WrapRegistererWith(prometheus.Labels{clusterLabel: cfg.Cluster}, cfg.Registerer))
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	m.initJobs(jobs)
	return assemble(cfg, jobs, client, m)
}

func assemble(cfg Config, jobs []*job, client kubernetes.Interface, m *metrics) (*Collector, error) {
	c := &Collector{
		cluster: cfg.Cluster, server: cfg.REST.Host, externalURL: strings.TrimSuffix(cfg.ExternalURL, "/"),
		log: cfg.Logger.With("cluster", cfg.Cluster), metrics: m, client: client, jobs: jobs,
		delivered: cfg.Delivered, trigger: make(chan struct{}, 1),
	}
	c.health = newHealth(c.log, m, time.Now, c.outdated)
	c.informers = newInformers(client, cfg.REST.Host, c.health)
	providers, err := newProviders(jobs, c.informers, m.discoveryEvents, c.log)
	if err != nil {
		return nil, err
	}
	c.providers = providers
	c.found = &found{bySource: map[sourceKey][]endpoint{}, missing: len(providers)}
	c.gateway = newGateway(c.lookup, cfg.MaxConcurrentScrapes, cfg.MaxBodyBytes, m, c.log)
	return c, c.publish()
}

func (cfg *Config) complete() error {
	if cfg.ScrapeInterval == 0 {
		cfg.ScrapeInterval = DefaultScrapeInterval
	}
	if cfg.ScrapeTimeout == 0 {
		cfg.ScrapeTimeout = DefaultScrapeTimeout
	}
	if cfg.MaxConcurrentScrapes == 0 {
		cfg.MaxConcurrentScrapes = DefaultMaxConcurrentScrapes
	}
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	var errs []error
	if !clusterName.MatchString(cfg.Cluster) {
		errs = append(errs, fmt.Errorf("cluster name %q: want letters, digits, dots, dashes and underscores, at most 128, beginning and ending with a letter or digit", cfg.Cluster))
	}
	if cfg.REST == nil {
		errs = append(errs, errors.New("no client configuration of the cluster"))
	}
	if u, err := url.Parse(cfg.ExternalURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		errs = append(errs, fmt.Errorf("external URL %q: want something like http://10.1.2.3:9750", cfg.ExternalURL))
	}
	if cfg.ScrapeInterval < time.Second || cfg.ScrapeTimeout < time.Millisecond {
		errs = append(errs, errors.New("scrape interval: at least 1s, and a positive scrape timeout"))
	}
	if cfg.MaxConcurrentScrapes < 1 || cfg.MaxBodyBytes < 1 {
		errs = append(errs, errors.New("concurrency and body limits must be positive"))
	}
	return errors.Join(errs...)
}

func newClient(cluster string, cfg *rest.Config) (*kubernetes.Clientset, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	cfg.UserAgent = "fleetwatch-collector/" + buildinfo.Version()
	cfg.Wrap(boundAnswers(cluster))
	return kubernetes.NewForConfig(cfg)
}

// Run discovers until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { c.informers.run(ctx) })
	wg.Go(func() { c.probe(ctx) })
	for i, p := range c.providers {
		wg.Go(func() {
			p.run(ctx, func(source string, group *targetgroup.Group, lb *labels.Builder) {
				c.take(sourceKey{i, source}, p.jobs, group, lb)
			}, func() { c.found.delivered(); c.outdated() })
		})
	}
	c.keepPublished(ctx)
	wg.Wait()
	return nil
}

// take relabels one group for every job of its provider.
func (c *Collector) take(key sourceKey, jobs []*job, group *targetgroup.Group, lb *labels.Builder) {
	var endpoints []endpoint
	for _, j := range jobs {
		es, failed := j.endpoints(group, lb)
		endpoints = append(endpoints, es...)
		if failed > 0 {
			c.metrics.relabelFailures.WithLabelValues(j.name).Add(float64(failed))
		}
	}
	if c.found.set(key, endpoints) {
		c.outdated()
	}
}

// outdated asks for a new list. It never blocks.
func (c *Collector) outdated() {
	select {
	case c.trigger <- struct{}{}:
	default:
	}
}

// keepPublished makes a list of the changes since the last one, at most one in
// each settle.
func (c *Collector) keepPublished(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.trigger:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		if err := c.publish(); err != nil {
			c.log.Error("publish the target list", "err", err)
		}
	}
}

// publish replaces the list. It has one caller at a time.
func (c *Collector) publish() error {
	endpoints, synced := c.found.all()
	s, err := newSnapshot(c.cluster, c.externalURL, c.jobs, endpoints, synced, c.health.problem())
	if err != nil {
		return err
	}
	before := c.published.Swap(s)
	c.gateway.failures.keep(s.byID)
	c.metrics.lastBuild.SetToCurrentTime()
	for _, j := range c.jobs {
		c.metrics.targets.WithLabelValues(j.name).Set(float64(s.perJob[j.name]))
	}
	if synced && (before == nil || !before.synced) {
		c.metrics.synced.Set(1)
		c.log.Info("discovery has delivered", "targets", len(endpoints))
		if c.delivered != nil {
			c.delivered()
		}
	}
	return nil
}

func (c *Collector) lookup(id string) (endpoint, bool) {
	e, ok := c.published.Load().byID[id]
	return e, ok
}

// probe asks the API server for a sign of life.
func (c *Collector) probe(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		c.probeOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Collector) probeOnce(ctx context.Context) {
	const what = "ask the API server for its version"
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := c.client.Discovery().RESTClient().Get().AbsPath("/version").Do(limited).Error()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.health.report(what, fleet.Explain(c.server, err))
	default:
		c.health.report(what, "")
	}
}
