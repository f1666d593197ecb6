// Package target holds what the collector, the sharder and the shards tell
// each other about scrape targets: plain values that travel as JSON.
//
// A collector publishes a List; the sharder turns Lists into one Assignment
// for each shard; a shard answers with a Status. Nothing in these values is
// secret: credentials stay in the collector, and a shard scrapes through the
// collector's gateway (ScrapeURL).
package target

import (
	"time"
)

// Target is one scrape endpoint after relabelling.
type Target struct {
	// ID is 16 hex digits, a hash over the pool, the scheme, address and path
	// of the endpoint and its final labels. Equal across collector restarts.
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Job     string `json:"job"`
	// Pool names the Pool that holds the target's scrape settings.
	Pool string `json:"pool"`
	// Address is the endpoint itself, such as https://10.0.0.7:10250/metrics.
	// It is for people: a shard need not be able to reach it.
	Address string `json:"address"`
	// ScrapeURL is the absolute gateway URL that a shard fetches.
	ScrapeURL string `json:"scrape_url"`
	// Labels are the final target labels, cluster, job and instance included,
	// without any label that begins with "__".
	Labels map[string]string `json:"labels"`
}

// Pool is the scrape settings that targets of one job in one cluster share.
type Pool struct {
	// Name is "<cluster>/<job_name>".
	Name string `json:"name"`
	// Config is one Prometheus scrape_config as YAML, with job_name equal to
	// Name, and without service discovery, relabel_configs and credentials:
	// those are the collector's. Metric relabelling and limits stay in it.
	Config string `json:"config"`
}

// List is the answer of a collector to GET /clusters/<cluster>/targets.
// Pools are sorted by name, targets by ID.
type List struct {
	Cluster string `json:"cluster"`
	// Synced is false until every discovery role has delivered once; an
	// unsynced list may lack targets and must not remove any.
	Synced bool `json:"synced"`
	// Error is why discovery is stale or incomplete, empty when it is not.
	Error   string   `json:"error,omitempty"`
	Pools   []Pool   `json:"pools"`
	Targets []Target `json:"targets"`
}

// Assignment is everything that one shard shall scrape. It is complete: a
// target that is not in it is stopped.
type Assignment struct {
	// Epoch fences sharders: a shard refuses an epoch below the highest seen.
	Epoch int64 `json:"epoch"`
	// Revision grows with every change within an epoch; applying the same
	// revision again changes nothing.
	Revision int64    `json:"revision"`
	Pools    []Pool   `json:"pools"`
	Targets  []Target `json:"targets"`
	// HandedOver are the IDs that leave this shard because another shard goes
	// on with them: they stop without end-of-run stale markers. Every other
	// target that leaves is gone for good and stops with them.
	HandedOver []string `json:"handed_over,omitempty"`
}

// Applied is a shard's answer to an Assignment.
type Applied struct {
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
	// LastSamples gives for each handed-over target that this call stopped the
	// time of its last sample, in milliseconds since the Unix epoch; 0 when it
	// never had one. No scrape of such a target is in flight any more.
	LastSamples map[string]int64 `json:"last_samples,omitempty"`
}

// Status is what a shard says of itself.
type Status struct {
	Shard    string `json:"shard"`
	Replica  string `json:"replica"`
	Epoch    int64  `json:"epoch"`
	Revision int64  `json:"revision"`
	// HeadSeries is the number of series in the TSDB head.
	HeadSeries int64 `json:"head_series"`
	// StorageError is why no sample is kept, empty while they are: "is not
	// storing: no space left in DIR; free some". A shard that does not run for
	// that reason answers HTTP 507 with the same text instead.
	StorageError string         `json:"storage_error,omitempty"`
	Targets      []TargetStatus `json:"targets"`
}

// Health values of a target, as Prometheus names them.
const (
	HealthUnknown = "unknown"
	HealthUp      = "up"
	HealthDown    = "down"
)

// TargetStatus is a shard's view of one of its targets.
type TargetStatus struct {
	ID     string `json:"id"`
	Health string `json:"health"`
	// Series is the number of samples of the last scrape after metric
	// relabelling; -1 until one scrape has succeeded.
	Series int64 `json:"series"`
	// SeriesAdded is the number of series that were new in the last scrape.
	SeriesAdded int64         `json:"series_added"`
	LastScrape  time.Time     `json:"last_scrape"`
	Duration    time.Duration `json:"duration_ns"`
	LastError   string        `json:"last_error,omitempty"`
}

// Probe is the result of one trial scrape: fetched, counted, thrown away.
type Probe struct {
	// Series is the number of samples after metric relabelling.
	Series   int64         `json:"series"`
	Bytes    int64         `json:"bytes"`
	Duration time.Duration `json:"duration_ns"`
	// Error is why the target could not be scraped, empty when it was.
	Error string `json:"error,omitempty"`
}

// ProbeRequest asks a shard for one trial scrape of a target under the scrape
// settings of its pool. The target need not be assigned to the shard.
type ProbeRequest struct {
	Pool   Pool   `json:"pool"`
	Target Target `json:"target"`
}
