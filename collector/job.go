package collector

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/scrape"
	"go.yaml.in/yaml/v2"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// clusterLabel is the target label that the collector sets last.
const clusterLabel = "cluster"

// job is one scrape_config, ready to turn discovered groups into endpoints.
// It is read-only once made.
type job struct {
	name    string
	cluster string
	config  *config.ScrapeConfig
	pool    target.Pool
	timeout time.Duration
	follow  bool
	trips   roundTrippers
}

func newJob(cluster string, c *config.ScrapeConfig, t *transports) (*job, error) {
	trips, err := t.forJob(c.JobName, c.HTTPClientConfig)
	if err != nil {
		return nil, err
	}
	pool, err := newPool(cluster, c)
	if err != nil {
		return nil, err
	}
	return &job{
		name: c.JobName, cluster: cluster, config: c, pool: pool,
		timeout: time.Duration(c.ScrapeTimeout), follow: c.HTTPClientConfig.FollowRedirects, trips: trips,
	}, nil
}

// newPool renders what a shard needs of a scrape_config: everything that acts
// on samples, nothing that finds or reaches a target. Whatever the application
// exposes and whatever the job's own rules do, the last rule puts the
// cluster's name on every series.
func newPool(cluster string, c *config.ScrapeConfig) (target.Pool, error) {
	p := *c
	p.JobName = cluster + "/" + c.JobName
	p.ServiceDiscoveryConfigs = nil
	p.RelabelConfigs = nil
	p.HTTPClientConfig = promconfig.DefaultHTTPClientConfig
	p.Params = nil
	p.MetricsPath, p.Scheme = config.DefaultScrapeConfig.MetricsPath, config.DefaultScrapeConfig.Scheme
	p.ScrapeFailureLogFile = ""
	p.MetricRelabelConfigs = append(slices.Clip(p.MetricRelabelConfigs), setCluster(cluster))
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	if err := enc.Encode(&p); err != nil {
		return target.Pool{}, fmt.Errorf("render the scrape settings: %w", err)
	}
	if err := enc.Close(); err != nil {
		return target.Pool{}, fmt.Errorf("render the scrape settings: %w", err)
	}
	return target.Pool{Name: p.JobName, Config: out.String()}, nil
}

func setCluster(cluster string) *relabel.Config {
	c := relabel.DefaultRelabelConfig
	c.TargetLabel, c.Replacement = clusterLabel, cluster
	return &c
}

// endpoint is one target of one job, and the way to it.
type endpoint struct {
	target target.Target
	url    *url.URL
	job    *job
	keep   bool // the connection stays open between scrapes
}

// endpoints relabels one discovered group. An entry that relabelling drops is
// left out; one that it leaves unusable is counted in failed. The builder is
// scratch space of the caller.
func (j *job) endpoints(group *targetgroup.Group, lb *labels.Builder) (found []endpoint, failed int) {
	for _, entry := range group.Targets {
		lset, err := scrape.PopulateLabels(lb, j.config, entry, group.Labels)
		if err != nil {
			failed++
			continue
		}
		if lset.IsEmpty() {
			continue
		}
		found = append(found, j.endpoint(lset, entry, group.Labels))
	}
	return found, failed
}

func (j *job) endpoint(lset labels.Labels, entry, group model.LabelSet) endpoint {
	u := scrape.NewTarget(lset, j.config, entry, group).URL()
	final := make(map[string]string, 8)
	lset.Range(func(l labels.Label) {
		if !strings.HasPrefix(l.Name, model.ReservedLabelPrefix) && l.Value != "" {
			final[l.Name] = l.Value
		}
	})
	final[clusterLabel] = j.cluster
	return endpoint{
		url: u,
		job: j,
		target: target.Target{
			ID:      targetID(j.pool.Name, u.String(), final),
			Cluster: j.cluster,
			Job:     final[model.JobLabel],
			Pool:    j.pool.Name,
			Address: j.shown(u),
			Labels:  final,
		},
	}
}

// shown is the URL for people: without the parameters that the job's
// configuration sets, for those may be secrets.
func (j *job) shown(u *url.URL) string {
	if len(j.config.Params) == 0 {
		return u.String()
	}
	short, query := *u, u.Query()
	for name := range j.config.Params {
		query.Del(name)
	}
	short.RawQuery = query.Encode()
	return short.String()
}

// targetID hashes what makes a target this one: pool, URL and final labels.
// Lengths keep two different sets from reading the same.
func targetID(pool, address string, final map[string]string) string {
	b := labels.NewScratchBuilder(len(final))
	for name, value := range final {
		b.Add(name, value)
	}
	b.Sort()
	h := sha256.New()
	write := func(s string) { fmt.Fprintf(h, "%d:%s,", len(s), s) }
	write(pool)
	write(address)
	b.Labels().Range(func(l labels.Label) {
		write(l.Name)
		write(l.Value)
	})
	return hex.EncodeToString(h.Sum(nil)[:8])
}
