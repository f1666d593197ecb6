package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// The scrape manager writes these series for each target, under its labels.
const (
	samplesMetric = "scrape_samples_post_metric_relabeling"
	addedMetric   = "scrape_series_added"
)

// statuses tells how each assigned target fares. Health and error are the
// scrape manager's; the counts are read from the head, two selects for all
// targets, and joined by the targets' labels.
type statuses struct {
	db      storage.Queryable
	manager *scrape.Manager
	now     func() time.Time

	mu     sync.Mutex
	series map[string]int64 // by ID: samples of the last good scrape
}

func (s *statuses) collect(ctx context.Context, w *wanted) ([]target.TargetStatus, error) {
	window := 5 * time.Minute
	for _, cfg := range w.configs {
		window = max(window, 2*time.Duration(cfg.ScrapeInterval)+time.Duration(cfg.ScrapeTimeout))
	}
	samples, err := s.newest(ctx, samplesMetric, window)
	if err != nil {
		return nil, err
	}
	added, err := s.newest(ctx, addedMetric, window)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]target.TargetStatus, 0, len(w.targets))
	known := make(map[string]int64, len(w.targets))
	seen := make(map[string]bool, len(w.targets))
	builder := labels.NewBuilder(labels.EmptyLabels())
	for _, pool := range s.manager.TargetsActive() {
		for _, t := range pool {
			id := t.GetValue(idLabel)
			if _, ok := w.targets[id]; !ok || seen[id] {
				continue // on its way out, or between two addresses
			}
			seen[id] = true
			status := target.TargetStatus{
				ID: id, Health: string(t.Health()), Series: -1,
				LastScrape: t.LastScrape(), Duration: t.LastScrapeDuration(),
			}
			if err := t.LastError(); err != nil {
				status.LastError = err.Error()
			}
			if last, ok := s.series[id]; ok {
				status.Series = last
			}
			hash := t.Labels(builder).Hash()
			if n, ok := samples[hash]; ok && status.Health == target.HealthUp {
				status.Series, status.SeriesAdded = int64(n), int64(added[hash])
			}
			if status.Series >= 0 {
				known[id] = status.Series
			}
			out = append(out, status)
		}
	}
	s.series = known
	for id := range w.targets {
		if seen[id] {
			continue
		}
		status := target.TargetStatus{ID: id, Health: target.HealthUnknown, Series: -1}
		if err := w.invalid[id]; err != nil {
			status.Health, status.LastError = target.HealthDown, err.Error()
		}
		out = append(out, status)
	}
	slices.SortFunc(out, func(a, b target.TargetStatus) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// newest gives the last value of each series of metric within the window, by
// the hash of its labels less the name.
func (s *statuses) newest(ctx context.Context, metric string, window time.Duration) (_ map[uint64]float64, err error) {
	now := s.now()
	from, to := now.Add(-window).UnixMilli(), now.UnixMilli()
	q, err := s.db.Querier(from, to)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", metric, err)
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	out := map[uint64]float64{}
	builder := labels.NewBuilder(labels.EmptyLabels())
	var it chunkenc.Iterator
	set := q.Select(ctx, false, &storage.SelectHints{Start: from, End: to},
		labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric))
	for set.Next() {
		series := set.At()
		it = series.Iterator(it)
		value, any := 0.0, false
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			if typ == chunkenc.ValFloat {
				_, value = it.At()
				any = true
			}
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", metric, err)
		}
		if any {
			builder.Reset(series.Labels())
			out[builder.Del(model.MetricNameLabel).Labels().Hash()] = value
		}
	}
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", metric, err)
	}
	return out, nil
}
