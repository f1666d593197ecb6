package collector

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"
)

//go:embed profile.yml
var profile []byte

// profileName stands for a file name in errors about the built-in profile.
const profileName = "built-in profile"

// Profile is the built-in scrape profile, as YAML.
func Profile() []byte { return slices.Clone(profile) }

// scrapeDefaults apply where neither a job nor its file's global section says.
type scrapeDefaults struct {
	interval, timeout time.Duration
}

// sourced is a scrape_config and where it comes from.
type sourced struct {
	*config.ScrapeConfig
	file string
}

// CheckConfigs reads scrape configuration files exactly as New does, so that a
// file which no collector would start with is found before any is started.
// The error is one line that names the file, the place in it and what is wrong.
func CheckConfigs(files []string) error {
	configs, err := loadScrapeConfigs(files, scrapeDefaults{interval: DefaultScrapeInterval, timeout: DefaultScrapeTimeout})
	if err != nil {
		return err
	}
	_, err = newJobs("check", configs, &rest.Config{Host: "https://127.0.0.1"})
	return err
}

// newJobs makes ready what loadScrapeConfigs has read, certificate files of the
// jobs included.
func newJobs(cluster string, configs []sourced, cfg *rest.Config) ([]*job, error) {
	idle := 90 * time.Second
	for _, c := range configs {
		idle = max(idle, 2*time.Duration(c.ScrapeInterval))
	}
	t := newTransports(cfg, idle)
	jobs := make([]*job, 0, len(configs))
	for _, c := range configs {
		j, err := newJob(cluster, c.ScrapeConfig, t)
		if err != nil {
			return nil, fmt.Errorf("%s: job_name %q: %w", c.file, c.JobName, err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// maxConfigBytes bounds a scrape configuration file.
const maxConfigBytes = 8 << 20

func readConfig(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file; give --scrape-config the path of a file with scrape_configs", file)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, reasonOfPath(err))
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a directory; name each file with --scrape-config", file)
	case info.Size() > maxConfigBytes:
		return nil, fmt.Errorf("%s: larger than %d MiB; split it and name each file with --scrape-config", file, maxConfigBytes>>20)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make it readable for the user that runs Fleetwatch", file, reasonOfPath(err))
	}
	return content, nil
}

// reasonOfPath leaves out the operation and the path, which the caller says.
func reasonOfPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// loadScrapeConfigs reads the built-in profile and then files. A job of a file
// replaces the profile's job of the same name; two files must not name the
// same job. The order is that of the profile, then of the files.
func loadScrapeConfigs(files []string, defaults scrapeDefaults) ([]sourced, error) {
	builtIn, err := parseScrapeConfigs(profileName, profile, defaults)
	if err != nil {
		return nil, err
	}
	configs := make([]sourced, 0, len(builtIn))
	for _, c := range builtIn {
		configs = append(configs, sourced{c, profileName})
	}
	owner := map[string]string{}
	for _, file := range files {
		content, err := readConfig(file)
		if err != nil {
			return nil, err
		}
		own, err := parseScrapeConfigs(file, content, defaults)
		if err != nil {
			return nil, err
		}
		for _, c := range own {
			if first, ok := owner[c.JobName]; ok {
				return nil, fmt.Errorf("%s: job_name %q is already in %s; rename one of them", file, c.JobName, first)
			}
			owner[c.JobName] = file
			c.SetDirectory(filepath.Dir(file))
			if i := slices.IndexFunc(configs, func(b sourced) bool { return b.JobName == c.JobName }); i >= 0 {
				configs[i] = sourced{c, file}
			} else {
				configs = append(configs, sourced{c, file})
			}
		}
	}
	return configs, nil
}

// parseScrapeConfigs parses one file as strictly as Prometheus does. Errors
// name the file, and the line where the parser knows it.
func parseScrapeConfigs(name string, content []byte, defaults scrapeDefaults) ([]*config.ScrapeConfig, error) {
	parsed, err := config.Load(string(content), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("%s: %s", name, oneLine(err))
	}
	if len(parsed.ScrapeConfigFiles) > 0 {
		return nil, fmt.Errorf("%s: scrape_config_files is not followed; name each file with --scrape-config", name)
	}
	if len(parsed.RemoteWriteConfigs)+len(parsed.RemoteReadConfigs)+len(parsed.RuleFiles)+len(parsed.AlertingConfig.AlertmanagerConfigs) > 0 {
		return nil, fmt.Errorf("%s: only global and scrape_configs belong into a scrape configuration; remove remote_write, remote_read, rule_files and alerting", name)
	}
	if len(parsed.ScrapeConfigs) == 0 {
		return nil, fmt.Errorf("%s: scrape_configs is missing or empty", name)
	}
	said, err := explicitTimes(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", name, oneLine(err))
	}
	var errs []error
	for i, c := range parsed.ScrapeConfigs {
		applyTimes(c, said, i, defaults)
		if err := checkScrapeConfig(c); err != nil {
			errs = append(errs, fmt.Errorf("%s: job_name %q: %w", name, c.JobName, err))
		}
	}
	if len(errs) > 0 {
		return nil, errs[0] // one line; the next run tells of the next one
	}
	return parsed.ScrapeConfigs, nil
}

// times are the intervals and timeouts that a file says itself; after
// config.Load they cannot be told from Prometheus' defaults.
type times struct {
	Interval model.Duration `yaml:"scrape_interval"`
	Timeout  model.Duration `yaml:"scrape_timeout"`
}

type fileTimes struct {
	Global times   `yaml:"global"`
	Jobs   []times `yaml:"scrape_configs"`
}

func explicitTimes(content []byte) (said fileTimes, err error) {
	return said, yaml.Unmarshal(content, &said)
}

func applyTimes(c *config.ScrapeConfig, said fileTimes, i int, defaults scrapeDefaults) {
	var job times
	if i < len(said.Jobs) {
		job = said.Jobs[i]
	}
	if job.Interval == 0 && said.Global.Interval == 0 {
		c.ScrapeInterval = model.Duration(defaults.interval)
	}
	if job.Timeout == 0 && said.Global.Timeout == 0 {
		c.ScrapeTimeout = model.Duration(defaults.timeout)
	}
	c.ScrapeTimeout = min(c.ScrapeTimeout, c.ScrapeInterval)
}

// checkScrapeConfig refuses what a collector of one cluster cannot honour.
func checkScrapeConfig(c *config.ScrapeConfig) error {
	if strings.ContainsAny(c.JobName, "/\n") {
		return errors.New("job_name must not contain a slash or a line break")
	}
	for _, sd := range c.ServiceDiscoveryConfigs {
		switch sd := sd.(type) {
		case discovery.StaticConfig:
		case *kubernetes.SDConfig:
			if sd.KubeConfig != "" || sd.APIServer.URL != nil {
				return errors.New("kubernetes_sd_configs: remove kubeconfig_file and api_server; the collector knows its cluster")
			}
			if sd.NamespaceDiscovery.IncludeOwnNamespace {
				return errors.New("kubernetes_sd_configs: own_namespace has no meaning here; list the namespace under names")
			}
		default:
			return fmt.Errorf("%s_sd_configs is not supported; use kubernetes_sd_configs or static_configs", sd.Name())
		}
	}
	return checkIdentity(c.HTTPClientConfig)
}

var (
	whitespace   = regexp.MustCompile(`\s+`)
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
)

// oneLine turns the parser's multi-line errors into one line.
func oneLine(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:")
	s = unknownField.ReplaceAllString(s, "unknown field $1")
	return strings.TrimSpace(whitespace.ReplaceAllString(s, " "))
}
