package shard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// prober makes trial scrapes: fetched and counted as a scrape would be, with
// nothing stored.
type prober struct {
	slots     chan struct{}
	bodyLimit int64
	metrics   *metrics
}

func newProber(concurrency int, bodyLimit int64, m *metrics) *prober {
	return &prober{slots: make(chan struct{}, concurrency), bodyLimit: bodyLimit, metrics: m}
}

// probe waits for a free slot. The error is ctx's; what is wrong with the
// target is in the result.
func (p *prober) probe(ctx context.Context, req target.ProbeRequest) (target.Probe, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return target.Probe{}, fmt.Errorf("wait for a free probe: %w", ctx.Err())
	}
	defer func() { <-p.slots }()
	start := time.Now()
	result, err := p.scrape(ctx, req)
	result.Duration = time.Since(start)
	outcome := "success"
	if err != nil {
		result.Error, outcome = err.Error(), "failure"
	}
	p.metrics.probes.WithLabelValues(outcome).Inc()
	return result, nil
}

func (p *prober) scrape(ctx context.Context, req target.ProbeRequest) (target.Probe, error) {
	cfg, err := parsePool(req.Pool)
	if err != nil {
		return target.Probe{}, err
	}
	if _, err := discovered(req.Target); err != nil {
		return target.Probe{}, err
	}
	client, err := commonconfig.NewClientFromConfig(cfg.HTTPClientConfig, cfg.JobName)
	if err != nil {
		return target.Probe{}, fmt.Errorf("pool %s: %w", cfg.JobName, err)
	}
	defer client.CloseIdleConnections()
	timeout := time.Duration(cfg.ScrapeTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	fetch, err := http.NewRequestWithContext(ctx, http.MethodGet, req.Target.ScrapeURL, http.NoBody)
	if err != nil {
		return target.Probe{}, fmt.Errorf("target %s: %w", req.Target.ID, err)
	}
	query := fetch.URL.Query()
	for name, values := range cfg.Params {
		if !query.Has(name) {
			query[name] = values
		}
	}
	fetch.URL.RawQuery = query.Encode()
	fetch.Header.Set("Accept", acceptHeader(cfg))
	fetch.Header.Set("Accept-Encoding", "gzip")
	fetch.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64))
	answer, err := client.Do(fetch)
	if err != nil {
		return target.Probe{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return target.Probe{}, fmt.Errorf("server returned HTTP status %s", answer.Status)
	}
	body, err := readBody(answer, p.limit(cfg))
	if err != nil {
		return target.Probe{}, err
	}
	result := target.Probe{Bytes: int64(len(body))}
	result.Series, err = countSamples(body, answer.Header.Get("Content-Type"), cfg, req.Target.Labels)
	return result, err
}

func (p *prober) limit(cfg *config.ScrapeConfig) int64 {
	if n := int64(cfg.BodySizeLimit); n > 0 {
		return min(n, p.bodyLimit)
	}
	return p.bodyLimit
}

func readBody(answer *http.Response, limit int64) ([]byte, error) {
	var reader io.Reader = answer.Body
	if answer.Header.Get("Content-Encoding") == "gzip" {
		unzip, err := gzip.NewReader(answer.Body)
		if err != nil {
			return nil, fmt.Errorf("read the gzip body: %w", err)
		}
		reader = unzip
	}
	body, err := io.ReadAll(io.LimitReader(reader, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("body is larger than %d bytes", limit)
	}
	return body, nil
}

// acceptHeader asks for the pool's protocols in its order of preference.
func acceptHeader(cfg *config.ScrapeConfig) string {
	escaping, err := config.ToEscapingScheme(cfg.MetricNameEscapingScheme, cfg.MetricNameValidationScheme)
	if err != nil {
		escaping = model.UnderscoreEscaping // refused by parsePool before
	}
	var accept strings.Builder
	q := len(config.ScrapeProtocolsHeaders) + 1
	for _, protocol := range cfg.ScrapeProtocols {
		accept.WriteString(config.ScrapeProtocolsHeaders[protocol])
		switch protocol {
		case config.PrometheusText1_0_0, config.OpenMetricsText1_0_0:
			fmt.Fprintf(&accept, ";escaping=%s", escaping)
		}
		fmt.Fprintf(&accept, ";q=0.%d,", q)
		q--
	}
	fmt.Fprintf(&accept, "*/*;q=0.%d", q)
	return accept.String()
}

// countSamples counts what a scrape of body would store, target labels and
// metric relabelling applied.
func countSamples(body []byte, contentType string, cfg *config.ScrapeConfig, targetLabels map[string]string) (int64, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return 0, nil
	}
	parser, err := textparse.New(body, contentType, nil, textparse.ParserOptions{
		IgnoreNativeHistograms:                  !cfg.ScrapeNativeHistogramsEnabled(),
		ConvertClassicHistogramsToNHCB:          cfg.ConvertClassicHistogramsToNHCBEnabled(),
		KeepClassicOnClassicAndNativeHistograms: cfg.AlwaysScrapeClassicHistogramsEnabled(),
		FallbackContentType:                     cfg.ScrapeFallbackProtocol.HeaderMediaType(),
	})
	if parser == nil {
		return 0, fmt.Errorf("body of type %q: %w", contentType, err)
	}
	var n int64
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("parse the body: %w", err)
		}
		if entry != textparse.EntrySeries && entry != textparse.EntryHistogram {
			continue
		}
		if stored(parser, cfg, targetLabels) {
			n++
		}
	}
	if limit := int64(cfg.SampleLimit); limit > 0 && n > limit {
		return n, fmt.Errorf("%d samples are more than the sample_limit of %d", n, limit)
	}
	return n, nil
}

func stored(parser textparse.Parser, cfg *config.ScrapeConfig, targetLabels map[string]string) bool {
	if len(cfg.MetricRelabelConfigs) == 0 {
		return true
	}
	var own labels.Labels
	parser.Labels(&own)
	builder := labels.NewBuilder(own)
	for name, value := range targetLabels {
		switch had := own.Get(name); {
		case had == "":
			builder.Set(name, value)
		case !cfg.HonorLabels:
			builder.Set(name, value)
			moved := model.ExportedLabelPrefix + name
			for builder.Get(moved) != "" {
				moved = model.ExportedLabelPrefix + moved
			}
			builder.Set(moved, had)
		}
	}
	return relabel.ProcessBuilder(builder, cfg.MetricRelabelConfigs...)
}
