package collector_test

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/fleetwatch-io/fleetwatch/collector"
)

const ownJobs = `scrape_configs:
- job_name: own
  scrape_interval: 7s
  honor_labels: true
  honor_timestamps: false
  sample_limit: 1234
  body_size_limit: 3MB
  label_limit: 9
  scrape_native_histograms: true
  scrape_protocols: [PrometheusProto, OpenMetricsText1.0.0]
  fallback_scrape_protocol: PrometheusText0.0.4
  native_histogram_bucket_limit: 160
  always_scrape_classic_histograms: true
  enable_compression: false
  metric_name_validation_scheme: legacy
  metrics_path: /custom
  params: {a: [b]}
  static_configs: [{targets: ["127.0.0.1:1"]}]
  metric_relabel_configs:
  - {source_labels: [cluster], target_label: cluster, replacement: stolen}
  - {regex: "clust.*", action: labelmap, replacement: other}
`

// TestPoolsSurviveTheShard loads every published pool as a shard does and
// compares it with what was meant.
func TestPoolsSurviveTheShard(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "own.yml")
	if err := os.WriteFile(file, []byte(ownJobs), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, newFakeAPI(t), func(cfg *collector.Config) {
		cfg.ScrapeConfigs, cfg.ScrapeInterval, cfg.ScrapeTimeout = []string{file}, 15*time.Second, time.Minute
	})
	meant := load(t, string(collector.Profile()))
	maps.Copy(meant, load(t, ownJobs))
	list := r.list(t)
	if len(list.Pools) != len(meant) || len(list.Pools) != 12 {
		t.Fatalf("%d pools, %d jobs", len(list.Pools), len(meant))
	}
	for _, p := range list.Pools {
		got := load(t, "scrape_configs:\n- "+strings.ReplaceAll(strings.TrimSpace(p.Config), "\n", "\n  "))[p.Name]
		if got == nil {
			t.Errorf("pool %s does not carry its name:\n%s", p.Name, p.Config)
			continue
		}
		want := *meant[strings.TrimPrefix(p.Name, "a/")]
		want.JobName = p.Name
		want.RelabelConfigs, want.ServiceDiscoveryConfigs, want.Params = nil, nil, nil
		want.HTTPClientConfig = promconfig.DefaultHTTPClientConfig
		want.MetricsPath, want.Scheme = "/metrics", "http"
		want.ScrapeInterval, want.ScrapeTimeout = model.Duration(15*time.Second), model.Duration(15*time.Second)
		if strings.HasSuffix(p.Name, "/own") {
			want.ScrapeInterval, want.ScrapeTimeout = model.Duration(7*time.Second), model.Duration(7*time.Second)
		}
		last := relabel.DefaultRelabelConfig
		last.TargetLabel, last.Replacement, last.NameValidationScheme = "cluster", "a", want.MetricNameValidationScheme
		want.MetricRelabelConfigs = append(slices.Clip(want.MetricRelabelConfigs), &last)
		compare := cmp.Options{
			cmpopts.IgnoreUnexported(config.ScrapeConfig{}, promconfig.URL{}),
			cmp.Comparer(func(a, b relabel.Regexp) bool { return a.String() == b.String() }),
			cmpopts.EquateEmpty(),
		}
		if diff := cmp.Diff(&want, got, compare, cmpopts.IgnoreFields(config.ScrapeConfig{}, "HTTPClientConfig")); diff != "" {
			t.Errorf("pool %s (-meant +loaded):\n%s", p.Name, diff)
		}
		if got.HTTPClientConfig.String() != want.HTTPClientConfig.String() {
			t.Errorf("pool %s has an HTTP client configuration: %s", p.Name, got.HTTPClientConfig)
		}
	}
}

// TestClusterCannotBeSpoofed: whatever an application exposes and a job's own
// rules do, series leave with the collector's cluster.
func TestClusterCannotBeSpoofed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "own.yml")
	if err := os.WriteFile(file, []byte(ownJobs), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, newFakeAPI(t), func(cfg *collector.Config) { cfg.ScrapeConfigs = []string{file} })
	for _, p := range r.list(t).Pools {
		c := load(t, "scrape_configs:\n- "+strings.ReplaceAll(strings.TrimSpace(p.Config), "\n", "\n  "))[p.Name]
		for _, exposed := range []string{"", "b", "a"} {
			series := labels.FromStrings("__name__", "m", "cluster", exposed, "job", "x", "instance", "y")
			got, keep := process(series, c.MetricRelabelConfigs)
			if keep && got.Get("cluster") != "a" {
				t.Errorf("pool %s: a series exposed with cluster=%q leaves with %q", p.Name, exposed, got.Get("cluster"))
			}
		}
	}
}

// TestProfileKeepsWhatRulesNeed: the drops of the profile hit what they mean.
func TestProfileKeepsWhatRulesNeed(t *testing.T) {
	t.Parallel()
	jobs := load(t, string(collector.Profile()))
	for _, c := range []struct {
		job, series string
		keep        bool
	}{
		{"kube-apiserver", `apiserver_request_total`, true},
		{"kube-apiserver", `apiserver_request_duration_seconds_bucket le=1.0`, true},
		{"kube-apiserver", `apiserver_request_duration_seconds_bucket le=1`, true},
		{"kube-apiserver", `apiserver_request_sli_duration_seconds_bucket le=30.0`, true},
		{"kube-apiserver", `apiserver_request_duration_seconds_bucket le=1.25`, false},
		{"kube-apiserver", `apiserver_request_duration_seconds_bucket le=3.0`, false},
		{"kube-apiserver", `apiserver_request_duration_seconds_bucket le=+Inf`, true},
		{"kube-apiserver", `apiserver_request_body_size_bytes_bucket le=1`, false},
		{"kube-apiserver", `apiserver_response_sizes_sum`, true},
		{"kube-apiserver", `apiserver_client_certificate_expiration_seconds_bucket le=0.0`, true},
		{"kube-apiserver", `apiserver_flowcontrol_rejected_requests_total`, true},
		{"kube-apiserver", `kubernetes_feature_enabled`, false},
		{"kube-scheduler", `scheduler_pending_pods`, true},
		{"kube-controller-manager", `workqueue_depth`, true},
		{"kube-controller-manager", `workqueue_queue_duration_seconds_bucket le=10.0`, true},
		{"kubelet", `kubelet_running_pods`, true},
		{"kubelet", `kubelet_pleg_relist_duration_seconds_bucket le=1.0`, true},
		{"kubelet", `storage_operation_duration_seconds_bucket le=1.0`, false},
		{"cadvisor", `container_cpu_usage_seconds_total id=/kubepods/x pod=p`, true},
		{"cadvisor", `container_cpu_usage_seconds_total id=/`, true},
		{"cadvisor", `container_cpu_usage_seconds_total id=/system.slice/ssh.service`, false},
		{"cadvisor", `container_tasks_state id=/kubepods/x pod=p`, false},
		{"cadvisor", `container_memory_working_set_bytes id=/kubepods/x pod=p`, true},
		{"cadvisor", `machine_memory_bytes`, true},
		{"etcd", `etcd_disk_wal_fsync_duration_seconds_bucket le=0.1`, true},
		{"etcd", `etcd_server_has_leader`, true},
		{"kube-state-metrics", `kube_pod_status_phase`, true},
		{"kube-state-metrics", `kube_secret_info`, false},
		{"node-exporter", `node_load1`, true},
		{"coredns", `coredns_dns_requests_total`, true},
	} {
		b := labels.NewScratchBuilder(4)
		for i, part := range strings.Fields(c.series) {
			if i == 0 {
				b.Add("__name__", part)
				continue
			}
			name, value, _ := strings.Cut(part, "=")
			b.Add(name, value)
		}
		b.Sort()
		if _, keep := process(b.Labels(), jobs[c.job].MetricRelabelConfigs); keep != c.keep {
			t.Errorf("%s: %s: kept is %v, want %v", c.job, c.series, keep, c.keep)
		}
	}
}

func load(t *testing.T, content string) map[string]*config.ScrapeConfig {
	t.Helper()
	c, err := config.Load(content, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%v in\n%s", err, content)
	}
	jobs := map[string]*config.ScrapeConfig{}
	for _, j := range c.ScrapeConfigs {
		jobs[j.JobName] = j
	}
	return jobs
}

func process(series labels.Labels, rules []*relabel.Config) (labels.Labels, bool) {
	b := labels.NewBuilder(series)
	keep := relabel.ProcessBuilder(b, rules...)
	return b.Labels(), keep
}
