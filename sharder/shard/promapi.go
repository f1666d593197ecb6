package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/notifications"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"
)

const blockDuration = 2 * time.Hour

// newPromAPI assembles Prometheus' own HTTP API, to be served below /api/v1.
func (s *Shard) newPromAPI(db *tsdb.DB, engine *promql.Engine, sc *scraper) (http.Handler, error) {
	external, err := url.Parse(s.cfg.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("external URL: %w", err)
	}
	base, err := config.Load("", s.log)
	if err != nil {
		return nil, fmt.Errorf("load the default configuration: %w", err)
	}
	base.GlobalConfig.ExternalLabels = labels.FromStrings("replica", s.cfg.Replica, "shard", s.cfg.Name)
	currentConfig := func() config.Config {
		cfg := *base
		if f := s.inForce.Load(); f != nil {
			cfg.ScrapeConfigs = make([]*config.ScrapeConfig, 0, len(f.want.configs))
			for _, name := range f.want.pools() {
				cfg.ScrapeConfigs = append(cfg.ScrapeConfigs, f.want.configs[name])
			}
		}
		return cfg
	}
	version := prometheusVersion()
	api := apiv1.NewAPI(
		engine, db, nil, db,
		func(context.Context) apiv1.ScrapePoolsRetriever { return sc.manager },
		func(context.Context) apiv1.TargetRetriever { return sc.manager },
		func(context.Context) apiv1.AlertmanagerRetriever { return nothing{} },
		currentConfig,
		s.flags(),
		apiv1.GlobalURLOptions{ListenAddress: external.Host, Host: external.Host, Scheme: external.Scheme},
		func(h http.HandlerFunc) http.HandlerFunc { return h }, // the mux asks before
		adminStats{db, s.replay}, db.Dir(),
		false, false, 0, // no admin API, no search
		s.log,
		func(context.Context) apiv1.RulesRetriever { return nothing{} },
		50_000_000, 10, 1<<20, // remote read: samples, requests, bytes in a frame
		false,
		regexp.MustCompile(`^(?:)$`), // no cross-origin requests
		s.runtimeInfo, version,
		func() []notifications.Notification { return nil },
		func() (<-chan notifications.Notification, func(), bool) { return nil, nil, false },
		s.cfg.Registry, s.cfg.Registry,
		nil, false, nil, false, false, false, // no remote write, no OTLP
		5*time.Minute,
		false, false, nil, nil,
		apiv1.OpenAPIOptions{ExternalURL: s.cfg.ExternalURL, Version: version.Version},
		parser.NewParser(parser.Options{}),
		false, s.cfg.QueryTimeout,
	)
	router := route.New()
	api.Register(router)
	return http.StripPrefix("/api/v1", router), nil
}

// flags are those of Prometheus that others read: thanos sidecar wants equal
// block durations before it uploads.
func (s *Shard) flags() map[string]string {
	return map[string]string{
		"query.lookback-delta":            "5m",
		"query.max-concurrency":           strconv.Itoa(s.cfg.QueryConcurrency),
		"query.max-samples":               strconv.Itoa(s.cfg.QueryMaxSamples),
		"query.timeout":                   model.Duration(s.cfg.QueryTimeout).String(),
		"storage.tsdb.max-block-duration": model.Duration(blockDuration).String(),
		"storage.tsdb.min-block-duration": model.Duration(blockDuration).String(),
		"storage.tsdb.path":               TSDBDir(s.cfg.DataDir),
		"storage.tsdb.retention.time":     model.Duration(s.cfg.Retention).String(),
		"web.enable-admin-api":            "false",
		"web.enable-lifecycle":            "false",
		"web.external-url":                s.cfg.ExternalURL,
	}
}

func (s *Shard) runtimeInfo() (apiv1.RuntimeInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		return apiv1.RuntimeInfo{}, fmt.Errorf("read the host name: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return apiv1.RuntimeInfo{}, fmt.Errorf("read the working folder: %w", err)
	}
	return apiv1.RuntimeInfo{
		StartTime: s.born, CWD: dir, Hostname: host, ServerTime: time.Now().UTC(),
		ReloadConfigSuccess: true, LastConfigTime: s.born,
		GoroutineCount: runtime.NumGoroutine(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		GOMEMLIMIT: debug.SetMemoryLimit(-1), GOGC: os.Getenv("GOGC"), GODEBUG: os.Getenv("GODEBUG"),
		StorageRetention: model.Duration(s.cfg.Retention).String(),
	}, nil
}

// prometheusVersion names the release whose packages are linked in: module
// version v0.316.0 is Prometheus 3.16.0.
func prometheusVersion() *apiv1.PrometheusVersion {
	v := &apiv1.PrometheusVersion{Version: "3.16.0", Branch: "fleetwatch", GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, dep := range info.Deps {
		if dep.Path != "github.com/prometheus/prometheus" {
			continue
		}
		parts := strings.Split(strings.TrimPrefix(dep.Version, "v"), ".")
		if len(parts) != 3 || len(parts[1]) != 3 {
			continue
		}
		if minor, err := strconv.Atoi(parts[1][1:]); err == nil {
			v.Version = fmt.Sprintf("%c.%d.%s", parts[1][0], minor, parts[2])
		}
	}
	return v
}

// nothing stands for the rules and Alertmanagers that a shard does not have:
// rules see a slice of a cluster only, and run in Thanos Rule.
type nothing struct{}

func (nothing) Alertmanagers() []*url.URL            { return nil }
func (nothing) DroppedAlertmanagers() []*url.URL     { return nil }
func (nothing) RuleGroups() []*rules.Group           { return nil }
func (nothing) AlertingRules() []*rules.AlertingRule { return nil }

// adminStats is the database as the API wants it.
type adminStats struct {
	*tsdb.DB
	replay *tsdb.DBStats
}

func (a adminStats) Stats(label string, limit int) (*tsdb.Stats, error) {
	return a.DB.Head().Stats(label, limit), nil
}

func (a adminStats) BlockMetas() ([]tsdb.BlockMeta, error) { return a.DB.BlockMetas(), nil }

func (a adminStats) WALReplayStatus() (tsdb.WALReplayStatus, error) {
	if a.replay == nil || a.replay.Head == nil {
		return tsdb.WALReplayStatus{}, errors.New("write-ahead log not read yet")
	}
	return a.replay.Head.WALReplayStatus.GetWALReplayStatus(), nil
}
