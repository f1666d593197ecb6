package shard_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/shardtest"
	"github.com/fleetwatch-io/fleetwatch/sharder/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func assignment(epoch, revision int64, pools []target.Pool, targets ...target.Target) target.Assignment {
	return target.Assignment{Epoch: epoch, Revision: revision, Pools: pools, Targets: targets}
}

func isUp(tb testing.TB, s *shardtest.Shard, id string) func() error {
	return func() error {
		got := s.Target(tb, id)
		if got == nil || got.Health != target.HealthUp || got.Series < 0 {
			return fmt.Errorf("target is %+v", got)
		}
		return nil
	}
}

func TestScrapesWhatIsAssigned(t *testing.T) {
	g := shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a, b := g.Target("alpha", "node", 1, 40), g.Target("alpha", "node", 2, 7)
	g.Fail(b.ID, http.StatusBadGateway)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "200ms")}
	applied, code := s.Put(t, assignment(3, 1, pools, a, b))
	if code != http.StatusOK || applied.Epoch != 3 || applied.Revision != 1 {
		t.Fatalf("apply: %d %+v", code, applied)
	}
	shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))
	shardtest.Eventually(t, 5*time.Second, "b is down", func() error {
		if got := s.Target(t, b.ID); got.Health != target.HealthDown || got.Series != -1 || !strings.Contains(got.LastError, "502") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := s.Target(t, a.ID); got.Series != 40 || got.LastScrape.IsZero() || got.Duration <= 0 {
		t.Errorf("status of a: %+v", got)
	}
	status := s.Status(t)
	if status.Shard != "shard-0" || status.Replica != "0" || status.Epoch != 3 || status.Revision != 1 || status.HeadSeries < 45 {
		t.Errorf("status: %+v", status)
	}
	up := shardtest.Query(t, s.URL, "up", time.Now())
	if len(up) != 2 || up[0].Metric["cluster"] != "alpha" || up[0].Metric["instance"] != "10.0.0.1:9100" || up[0].Value() != 1 || up[1].Value() != 0 {
		t.Errorf("up: %+v", up)
	}
	for name := range up[0].Metric {
		if strings.HasPrefix(name, "__") && name != "__name__" {
			t.Errorf("label %s reached a series", name)
		}
	}
}

func TestRefusesOlderAssignments(t *testing.T) {
	g := shardtest.NewGateway(t)
	dir := t.TempDir()
	s := shardtest.Start(t, "shard-0", dir)
	a := g.Target("alpha", "node", 1, 1)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "1s")}
	for _, step := range []struct {
		name            string
		epoch, revision int64
		want            int
	}{
		{"first", 5, 2, http.StatusOK},
		{"same again", 5, 2, http.StatusOK},
		{"older revision", 5, 1, http.StatusConflict},
		{"older epoch", 4, 9, http.StatusConflict},
		{"no epoch", 0, 9, http.StatusBadRequest},
		{"newer epoch", 6, 1, http.StatusOK},
	} {
		if _, code := s.Put(t, assignment(step.epoch, step.revision, pools, a)); code != step.want {
			t.Errorf("%s: HTTP %d, want %d", step.name, code, step.want)
		}
	}
	s.Stop()
	s = shardtest.Start(t, "shard-0", dir)
	if _, code := s.Put(t, assignment(5, 9, pools, a)); code != http.StatusConflict {
		t.Errorf("older epoch after a restart: HTTP %d, want 409", code)
	}
}

func TestRestartGoesOnWithoutSharder(t *testing.T) {
	g := shardtest.NewGateway(t)
	dir := t.TempDir()
	s := shardtest.Start(t, "shard-0", dir)
	a := g.Target("alpha", "node", 1, 5)
	s.Put(t, assignment(1, 1, []target.Pool{shardtest.Pool("alpha", "node", "200ms")}, a))
	shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))
	s.Stop()
	before := g.Scrapes(a.ID)
	s = shardtest.Start(t, "shard-0", dir)
	shardtest.Eventually(t, 5*time.Second, "a is scraped again", func() error {
		if g.Scrapes(a.ID) == before {
			return fmt.Errorf("no scrape since")
		}
		return nil
	})
	if got := s.Status(t); got.Epoch != 1 || got.Revision != 1 || len(got.Targets) != 1 {
		t.Errorf("status after restart: %+v", got)
	}
}

func TestCorruptAssignmentIsSetAside(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "assignment.json")
	if err := os.WriteFile(file, []byte(`{"epoch": 4, "targ`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := shardtest.Start(t, "shard-0", dir)
	if got := s.Status(t); got.Epoch != 0 || len(got.Targets) != 0 {
		t.Errorf("status: %+v", got)
	}
	if _, err := os.Stat(file + ".corrupt"); err != nil {
		t.Error(err)
	}
}

func TestBadPoolFailsItsOwnTargetsOnly(t *testing.T) {
	g := shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a, b := g.Target("alpha", "node", 1, 5), g.Target("alpha", "app", 2, 5)
	c := g.Target("alpha", "node", 3, 5)
	c.ScrapeURL = "no url"
	pools := []target.Pool{shardtest.Pool("alpha", "node", "200ms"), {Name: "alpha/app", Config: "job_name: alpha/app\nnonsense: true"}}
	if _, code := s.Put(t, assignment(1, 1, pools, a, b, c)); code != http.StatusOK {
		t.Fatalf("HTTP %d", code)
	}
	shardtest.Eventually(t, 5*time.Second, "a is up", isUp(t, s, a.ID))
	if got := s.Target(t, b.ID); got.Health != target.HealthDown || !strings.Contains(got.LastError, "alpha/app") || !strings.Contains(got.LastError, "nonsense") {
		t.Errorf("target of a bad pool: %+v", got)
	}
	if got := s.Target(t, c.ID); got.Health != target.HealthDown || !strings.Contains(got.LastError, "no url") {
		t.Errorf("target with a bad URL: %+v", got)
	}
	// A pool that turns bad keeps its last good configuration.
	pools[0].Config = "job_name: other"
	s.Put(t, assignment(1, 2, pools, a))
	before := g.Scrapes(a.ID)
	shardtest.Eventually(t, 5*time.Second, "a goes on", func() error {
		if g.Scrapes(a.ID) < before+2 {
			return fmt.Errorf("no scrape since")
		}
		return nil
	})
}

func TestChangesLeaveOtherTargetsAlone(t *testing.T) {
	g := shardtest.NewGateway(t)
	s := shardtest.Start(t, "shard-0", t.TempDir())
	a, b := g.Target("alpha", "node", 1, 5), g.Target("beta", "node", 2, 5)
	pools := []target.Pool{shardtest.Pool("alpha", "node", "1h"), shardtest.Pool("beta", "node", "1s")}
	start := time.Now()
	s.Put(t, assignment(1, 1, pools, a))
	for i := range 10 {
		if i%2 == 0 {
			s.Put(t, assignment(1, int64(2+i), pools, a, b))
		} else {
			s.Put(t, assignment(1, int64(2+i), pools[:1], a))
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("11 changes took %s, want well under 1 s each", took)
	}
	answer := get(t, s.URL+"/metrics")
	for line := range strings.Lines(answer) {
		if strings.HasPrefix(line, "prometheus_target_scrape_pool_reloads_total") && strings.TrimSpace(line) != "prometheus_target_scrape_pool_reloads_total 0" {
			t.Errorf("a pool was restarted: %s", line)
		}
	}
}

func get(tb testing.TB, url string) string {
	tb.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		tb.Fatalf("GET %s: HTTP %d: %v: %s", url, answer.StatusCode, err, body)
	}
	return string(body)
}

func TestServesWhatThePrometheusWorldAsksFor(t *testing.T) {
	s := shardtest.Start(t, "shard-0", t.TempDir())
	for path, want := range map[string]string{
		"/-/ready":                      "Ready",
		"/-/healthy":                    "Healthy",
		"/metrics":                      "prometheus_tsdb_head_series",
		"/api/v1/status/config":         `shard: shard-0`,
		"/api/v1/status/flags":          `"storage.tsdb.min-block-duration":"2h"`,
		"/api/v1/status/buildinfo":      `"version":"3.`,
		"/api/v1/status/runtimeinfo":    `"storageRetention":"6h"`,
		"/api/v1/status/tsdb":           `"headStats"`,
		"/api/v1/status/walreplay":      `"success"`,
		"/api/v1/labels":                `"success"`,
		"/api/v1/metadata":              `"success"`,
		"/api/v1/targets":               `"activeTargets"`,
		"/api/v1/rules":                 `"groups":[]`,
		"/api/v1/alerts":                `"alerts":[]`,
		"/api/v1/alertmanagers":         `"success"`,
		"/api/v1/query?query=vector(1)": `"vector"`,
	} {
		if body := get(t, s.URL+path); !strings.Contains(body, want) {
			t.Errorf("%s: want %s in %s", path, want, body)
		}
	}
}

func TestConfigErrorsAreNamed(t *testing.T) {
	_, err := shard.New(shard.Config{Retention: time.Minute, StripeSize: 3})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"shard name", "replica", "data folder", "external URL", "retention 1m0s", "stripe size 3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestMetricsAreLintClean(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := shard.New(shard.Config{Name: "s", Replica: "0", DataDir: t.TempDir(), ExternalURL: "http://127.0.0.1:1", Registry: reg}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
