package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// family declares one metric name that is kept, and by which labels. Series
// that differ only in other labels are added up, or the largest is kept.
type family struct {
	keep    []string
	largest bool
}

var apiServerFamilies = map[string]family{
	"apiserver_storage_size_bytes":                           {keep: []string{"storage_cluster_id"}, largest: true},
	"apiserver_storage_db_total_size_in_bytes":               {keep: []string{"endpoint"}, largest: true},
	"apiserver_resource_objects":                             {keep: []string{"group", "resource"}, largest: true},
	"apiserver_storage_objects":                              {keep: []string{"resource"}, largest: true},
	"apiserver_requested_deprecated_apis":                    {keep: []string{"group", "version", "resource", "removed_release"}, largest: true},
	"apiserver_request_total":                                {keep: []string{"code"}},
	"apiserver_flowcontrol_rejected_requests_total":          {keep: []string{"priority_level", "reason"}},
	"apiserver_flowcontrol_dispatched_requests_total":        {keep: []string{"priority_level"}},
	"apiserver_client_certificate_expiration_seconds_bucket": {keep: []string{"le"}},
	"apiserver_client_certificate_expiration_seconds_count":  {},
	"etcd_request_duration_seconds_bucket":                   {keep: []string{"le"}},
	"etcd_request_duration_seconds_count":                    {},
	"process_start_time_seconds":                             {largest: true},
}

var etcdFamilies = map[string]family{
	"etcd_server_has_leader":                           {largest: true},
	"etcd_server_is_learner":                           {largest: true},
	"etcd_server_quota_backend_bytes":                  {largest: true},
	"etcd_mvcc_db_total_size_in_bytes":                 {largest: true},
	"etcd_mvcc_db_total_size_in_use_in_bytes":          {largest: true},
	"etcd_disk_wal_fsync_duration_seconds_bucket":      {keep: []string{"le"}},
	"etcd_disk_wal_fsync_duration_seconds_count":       {},
	"etcd_disk_backend_commit_duration_seconds_bucket": {keep: []string{"le"}},
	"etcd_disk_backend_commit_duration_seconds_count":  {},
	"process_start_time_seconds":                       {largest: true},
}

// declaredBody bounds what is kept of one answer before it is aggregated.
const declaredBody = 16 << 20

// parseMetrics reads a text exposition and keeps the declared families. The
// whole answer goes by line by line; only declared lines stay in memory.
func parseMetrics(body io.Reader, families map[string]family, at time.Time) (*Samples, error) {
	declared, lines, err := declaredLines(body, families)
	if err != nil {
		return nil, err
	}
	if lines == 0 {
		return nil, fmt.Errorf("%w: no metrics in the answer", errMalformed)
	}
	values := map[string]*Sample{}
	parser := textparse.NewPromParser(declared, labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		parser.Labels(&series)
		_, _, value := parser.Series()
		if name := series.Get(model.MetricNameLabel); !math.IsNaN(value) && !math.IsInf(value, 0) {
			aggregate(values, name, families[name], series, value)
		}
	}
	samples := &Samples{At: at.UTC()}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		samples.Values = append(samples.Values, *values[key])
	}
	return samples, nil
}

func aggregate(values map[string]*Sample, name string, declared family, series labels.Labels, value float64) {
	var kept map[string]string
	parts := []string{name}
	for _, label := range declared.keep {
		if text := series.Get(label); text != "" {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[label] = text
			parts = append(parts, label, text)
		}
	}
	key := strings.Join(parts, "\xff")
	known, ok := values[key]
	switch {
	case !ok:
		values[key] = &Sample{Name: name, Labels: kept, Value: value}
	case declared.largest:
		known.Value = max(known.Value, value)
	default:
		known.Value += value
	}
}

// declaredLines returns the sample lines of declared families and the number
// of all lines seen.
func declaredLines(body io.Reader, families map[string]family) ([]byte, int, error) {
	var declared bytes.Buffer
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	seen := 0
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		end := bytes.IndexAny(line, "{ \t")
		if end < 0 {
			return nil, 0, fmt.Errorf("%w: not a metrics text", errMalformed)
		}
		seen++
		if _, ok := families[string(line[:end])]; !ok {
			continue
		}
		if declared.Len()+len(line) > declaredBody {
			return nil, 0, fmt.Errorf("%w: the declared metrics are too long", errMalformed)
		}
		declared.Write(line)
		declared.WriteByte('\n')
	}
	return declared.Bytes(), seen, lines.Err()
}

// scraped is a first read of /metrics that can be repeated.
type scraped struct {
	index int // in snap.Scrapes
	at    time.Time
	again func(context.Context) (*Samples, error)
}

func (r *reader) addScrape(scrape Scrape, at time.Time, again func(context.Context) (*Samples, error)) scraped {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snap.Scrapes = append(r.snap.Scrapes, scrape)
	return scraped{index: len(r.snap.Scrapes) - 1, at: at, again: again}
}

func (r *reader) scrapeAPIServer(ctx context.Context) scraped {
	started := time.Now()
	fetch := func(ctx context.Context) (*Samples, error) {
		var samples *Samples
		err := r.get(ctx, "/metrics", "text/plain;version=0.0.4", metricBody, func(response *http.Response, body io.Reader) (err error) {
			if response.StatusCode != http.StatusOK {
				return statusError(response.StatusCode)
			}
			samples, err = parseMetrics(body, apiServerFamilies, time.Now())
			return err
		})
		return samples, err
	}
	samples, err := fetch(ctx)
	items := 0
	if samples != nil {
		items = len(samples.Values)
	}
	r.record(APIServerMetrics, started, items, err)
	scrape := Scrape{Component: ComponentAPIServer, Instance: r.base.Host, First: samples, Problem: classify(err)}
	return r.addScrape(scrape, time.Now(), fetch)
}

// scrapeAgain reads the metrics a second time, so that counters tell of now
// and not only of the time since a process started.
func (r *reader) scrapeAgain(ctx context.Context, all []scraped) {
	if r.options.MetricsWindow < 0 {
		return
	}
	var latest time.Time
	all = slices.DeleteFunc(all, func(s scraped) bool { return s.again == nil || r.snap.Scrapes[s.index].First == nil })
	for _, s := range all {
		if s.at.After(latest) {
			latest = s.at
		}
	}
	if len(all) == 0 || !sleep(ctx, time.Until(latest.Add(r.options.MetricsWindow))) {
		return
	}
	for _, s := range all {
		samples, err := s.again(ctx)
		if err == nil {
			r.snap.Scrapes[s.index].Second = samples
		}
	}
}

// sleep waits, and returns false when ctx ended first.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Value returns the value of a family's only or largest series with the given
// label pairs (name, value, name, value...).
func (s *Samples) Value(name string, pairs ...string) (float64, bool) {
	found := false
	largest := math.Inf(-1)
	for _, sample := range s.Select(name, pairs...) {
		found, largest = true, max(largest, sample.Value)
	}
	return largest, found
}

// Select returns the series of a family that have the given label pairs.
func (s *Samples) Select(name string, pairs ...string) []Sample {
	if s == nil {
		return nil
	}
	var selected []Sample
	for _, sample := range s.Values {
		if sample.Name == name && hasPairs(sample.Labels, pairs) {
			selected = append(selected, sample)
		}
	}
	return selected
}

func hasPairs(have map[string]string, pairs []string) bool {
	for i := 0; i+1 < len(pairs); i += 2 {
		if have[pairs[i]] != pairs[i+1] {
			return false
		}
	}
	return true
}
