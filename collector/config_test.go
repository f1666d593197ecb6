package collector_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

func configOf(files ...string) collector.Config {
	return collector.Config{
		Cluster: "a", REST: &rest.Config{Host: "https://127.0.0.1:1"}, ExternalURL: "http://127.0.0.1:9750", ScrapeConfigs: files,
	}
}

// TestBadScrapeConfigs: each testdata/bad/*.yml gives the one line in its
// .want file.
func TestBadScrapeConfigs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		_, err := collector.New(configOf(file))
		got := "accepted"
		if err != nil {
			got = err.Error()
		}
		wantFile := strings.TrimSuffix(file, ".yml") + ".want"
		if *update {
			if err := os.WriteFile(wantFile, []byte(got+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(wantFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := collector.CheckConfigs([]string{file}); err == nil || err.Error() != got {
			t.Errorf("%s: CheckConfigs says %v, New says %s", file, err, got)
		}
		if diff := cmp.Diff(strings.TrimSpace(string(want)), got); diff != "" || strings.Contains(got, "\n") {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*collector.Config)
		want   string
	}{
		"no cluster":       {func(c *collector.Config) { c.Cluster = "" }, `cluster name ""`},
		"slash in cluster": {func(c *collector.Config) { c.Cluster = "a/b" }, `cluster name "a/b"`},
		"quote in cluster": {func(c *collector.Config) { c.Cluster = "a{b}" }, `cluster name "a{b}"`},
		"no REST":          {func(c *collector.Config) { c.REST = nil }, "no client configuration"},
		"external URL":     {func(c *collector.Config) { c.ExternalURL = "127.0.0.1:9750" }, `external URL "127.0.0.1:9750"`},
		"interval":         {func(c *collector.Config) { c.ScrapeInterval = 1 }, "scrape interval"},
		"negative limit":   {func(c *collector.Config) { c.MaxBodyBytes = -1 }, "must be positive"},
		"missing file":     {func(c *collector.Config) { c.ScrapeConfigs = []string{"nope.yml"} }, "nope.yml: no such file; give --scrape-config"},
		"the same job twice": {func(c *collector.Config) {
			c.ScrapeConfigs = []string{"testdata/good/own.yml", "testdata/good/own.yml"}
		}, "testdata/good/own.yml: job_name \"coredns\" is already in testdata/good/own.yml; rename one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configOf()
			c.change(&cfg)
			if _, err := collector.New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestCheckConfigs(t *testing.T) {
	t.Parallel()
	if err := collector.CheckConfigs([]string{"testdata/good/own.yml"}); err != nil {
		t.Error(err)
	}
	if err := collector.CheckConfigs(nil); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{
		"testdata/nope.yml":       "testdata/nope.yml: no such file; give --scrape-config the path of a file with scrape_configs",
		"testdata/good":           "testdata/good: is a directory; name each file with --scrape-config",
		"testdata/bad/slash.yml/": "testdata/bad/slash.yml/: not a directory",
	} {
		if err := collector.CheckConfigs([]string{file}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestOwnJobs: a file adds jobs, replaces built-in ones by name, and may use
// every role of Kubernetes discovery.
func TestOwnJobs(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, objectsOf(t, "testdata/good/objects.yaml")...)
	r := start(t, api, func(cfg *collector.Config) { cfg.ScrapeConfigs = []string{"testdata/good/own.yml"} })
	list := r.await(t, "discovery has delivered", synced)
	checkList(t, r.url, list)
	got := renderTargets(t, list)
	if *update {
		if err := os.WriteFile("testdata/good/own.golden", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/good/own.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

// FuzzScrapeConfig: no file makes New panic, and every error is one line that
// names the file.
func FuzzScrapeConfig(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yml", "testdata/good/*.yml", "profile.yml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(content))
		}
	}
	f.Fuzz(func(t *testing.T, content string) {
		file := filepath.Join(t.TempDir(), "own.yml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := collector.New(configOf(file)); err != nil && (strings.Contains(err.Error(), "\n") && !strings.Contains(err.Error(), "job_name")) {
			t.Errorf("not one line: %v", err)
		}
	})
}

// jobsOf counts targets by job.
func jobsOf(list target.List) map[string]int {
	jobs := map[string]int{}
	for _, x := range list.Targets {
		jobs[x.Job]++
	}
	return jobs
}
