package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net/url"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is the input of New. Zero values mean the defaults below.
type Config struct {
	// Name and Replica are the shard's two external labels.
	Name    string
	Replica string
	// DataDir holds the assignment and, in TSDBDir, the series.
	DataDir string
	// ExternalURL is where others reach the shard, such as http://127.0.0.1:9710.
	ExternalURL string
	// Retention bounds what is kept on disk; default 6 h, at least 2 h.
	Retention time.Duration
	// StripeSize is the number of hash stripes in the head, a power of two.
	// Default 16384, for millions of series; 512 saves some 4 MiB in a small shard.
	StripeSize int
	// QueryConcurrency, QueryMaxSamples and QueryTimeout bound PromQL; defaults
	// 20, 50 million and 2 min as in Prometheus.
	QueryConcurrency int
	QueryMaxSamples  int
	QueryTimeout     time.Duration
	// ProbeConcurrency bounds trial scrapes in flight (default 8) and
	// ProbeBodyLimit the bytes of one (default 64 MiB, decompressed).
	ProbeConcurrency int
	ProbeBodyLimit   int64
	// ApplyTimeout bounds one change of assignment (default 1 min). It must be
	// above the longest scrape timeout: a scrape in flight is waited for.
	ApplyTimeout time.Duration
	// Logger is discarded when nil.
	Logger *slog.Logger
	// Registry receives the metrics of all the parts and is what /metrics
	// serves. A new one is made when nil. One registry serves one shard.
	Registry *prometheus.Registry
}

// TSDBDir is the folder of the series below a shard's data folder: the
// --tsdb.path of its sidecar.
func TSDBDir(dataDir string) string { return filepath.Join(dataDir, "tsdb") }

func (c Config) assignmentFile() string { return filepath.Join(c.DataDir, "assignment.json") }

// withDefaults fills zero values and reports every invalid one.
func (c Config) withDefaults() (Config, error) {
	c.Retention = orDefault(c.Retention, 6*time.Hour)
	c.StripeSize = orDefault(c.StripeSize, 1<<14)
	c.QueryConcurrency = orDefault(c.QueryConcurrency, 20)
	c.QueryMaxSamples = orDefault(c.QueryMaxSamples, 50_000_000)
	c.QueryTimeout = orDefault(c.QueryTimeout, 2*time.Minute)
	c.ProbeConcurrency = orDefault(c.ProbeConcurrency, 8)
	c.ProbeBodyLimit = orDefault(c.ProbeBodyLimit, bodyLimit)
	c.ApplyTimeout = orDefault(c.ApplyTimeout, time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("shard name: is empty; it becomes the external label shard"))
	}
	if c.Replica == "" {
		errs = append(errs, errors.New("replica: is empty; it becomes the external label replica"))
	}
	if c.DataDir == "" {
		errs = append(errs, errors.New("data folder: is empty"))
	}
	if u, err := url.Parse(c.ExternalURL); err != nil || u.Host == "" {
		errs = append(errs, fmt.Errorf("external URL %q: want a URL such as http://127.0.0.1:9710", c.ExternalURL))
	}
	if c.Retention < 2*time.Hour {
		errs = append(errs, fmt.Errorf("retention %s: want at least 2h, the length of one block", c.Retention))
	}
	if c.StripeSize < 1 || bits.OnesCount(uint(c.StripeSize)) != 1 {
		errs = append(errs, fmt.Errorf("stripe size %d: want a power of two", c.StripeSize))
	}
	if c.QueryConcurrency < 1 || c.QueryMaxSamples < 1 || c.ProbeConcurrency < 1 {
		errs = append(errs, errors.New("query concurrency, query samples and probe concurrency: want at least 1"))
	}
	return c, errors.Join(errs...)
}

func orDefault[T comparable](value, def T) T {
	var zero T
	if value == zero {
		return def
	}
	return value
}
