package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"go.yaml.in/yaml/v3"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// idLabel carries a target's ID through the scrape manager. Labels that begin
// with "__" never reach a series.
const idLabel = "__fleetwatch_target_id__"

// bodyLimit is the body_size_limit of pools that set none: without one, a body
// without an end, or a small one that unpacks to gigabytes, takes the shard down.
const bodyLimit = 64 << 20

// parsePool turns one pool into a validated scrape config.
func parsePool(p target.Pool) (*config.ScrapeConfig, error) {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(p.Config), &node); err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	if len(node.Content) != 1 || node.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("pool %s: want one scrape_config as a YAML mapping", p.Name)
	}
	doc, err := yaml.Marshal(map[string]any{"scrape_configs": []*yaml.Node{node.Content[0]}})
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	loaded, err := config.Load(string(doc), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	cfg := loaded.ScrapeConfigs[0]
	if cfg.BodySizeLimit == 0 {
		cfg.BodySizeLimit = bodyLimit
	}
	switch {
	case cfg.JobName != p.Name:
		return nil, fmt.Errorf("pool %s: job_name is %q, want the name of the pool", p.Name, cfg.JobName)
	case len(cfg.ServiceDiscoveryConfigs) > 0:
		return nil, fmt.Errorf("pool %s: has service discovery, which is the collector's", p.Name)
	case len(cfg.RelabelConfigs) > 0:
		return nil, fmt.Errorf("pool %s: has relabel_configs, which are the collector's", p.Name)
	}
	// What the scrape manager would refuse later must be refused here.
	if _, err := config.ToEscapingScheme(cfg.MetricNameEscapingScheme, cfg.MetricNameValidationScheme); err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	client, err := commonconfig.NewClientFromConfig(cfg.HTTPClientConfig, p.Name)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	client.CloseIdleConnections()
	return cfg, nil
}

// discovered gives the labels from which the scrape manager builds t.
func discovered(t target.Target) (model.LabelSet, error) {
	u, err := url.Parse(t.ScrapeURL)
	if err != nil {
		return nil, fmt.Errorf("target %s: scrape URL: %w", t.ID, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("target %s: scrape URL %q: want an absolute http or https URL", t.ID, t.ScrapeURL)
	}
	if u.EscapedPath() != (&url.URL{Path: u.Path}).EscapedPath() {
		return nil, fmt.Errorf("target %s: scrape URL %q: its path has escapes that a metrics path cannot hold", t.ID, t.ScrapeURL)
	}
	set := make(model.LabelSet, len(t.Labels)+5)
	for name, value := range t.Labels {
		if len(name) > 1 && name[:2] == model.ReservedLabelPrefix {
			return nil, fmt.Errorf("target %s: label %s is reserved", t.ID, name)
		}
		set[model.LabelName(name)] = model.LabelValue(value)
	}
	set[idLabel] = model.LabelValue(t.ID)
	set[model.SchemeLabel] = model.LabelValue(u.Scheme)
	set[model.AddressLabel] = model.LabelValue(u.Host)
	set[model.MetricsPathLabel] = model.LabelValue(u.Path)
	for name, values := range u.Query() {
		set[model.LabelName(model.ParamLabelPrefix+name)] = model.LabelValue(values[0])
	}
	return set, nil
}

// wanted is an assignment translated for the scrape manager. It is immutable.
type wanted struct {
	configs map[string]*config.ScrapeConfig // by pool
	groups  map[string][]*targetgroup.Group // by pool, one group each
	keys    map[string]map[string]string    // pool -> target ID -> endpoint key
	invalid map[string]error                // target ID -> why it is not scraped
	targets map[string]target.Target        // every assigned target by ID
	texts   map[string]string               // config text by pool, of configs
	badPool map[string]error                // pool -> why its config is not used
}

// translate builds wanted from a. A pool whose text did not change keeps its
// config value, so that the scrape manager sees no change either; one whose
// new text is invalid keeps the last good config.
func translate(a target.Assignment, old *wanted) *wanted {
	w := &wanted{
		configs: make(map[string]*config.ScrapeConfig, len(a.Pools)),
		groups:  make(map[string][]*targetgroup.Group, len(a.Pools)),
		keys:    make(map[string]map[string]string, len(a.Pools)),
		invalid: map[string]error{},
		targets: make(map[string]target.Target, len(a.Targets)),
		texts:   make(map[string]string, len(a.Pools)),
		badPool: map[string]error{},
	}
	for _, p := range a.Pools {
		w.addPool(p, old)
	}
	builder := labels.NewBuilder(labels.EmptyLabels())
	for _, t := range a.Targets {
		w.addTarget(t, builder)
	}
	return w
}

func (w *wanted) addPool(p target.Pool, old *wanted) {
	if _, double := w.configs[p.Name]; double {
		w.badPool[p.Name] = fmt.Errorf("pool %s: is given twice", p.Name)
		return
	}
	cfg, text := (*config.ScrapeConfig)(nil), p.Config
	if old != nil && old.configs[p.Name] != nil && old.texts[p.Name] == p.Config {
		cfg = old.configs[p.Name]
	} else {
		parsed, err := parsePool(p)
		if err != nil {
			w.badPool[p.Name] = err
			if old == nil || old.configs[p.Name] == nil {
				return
			}
			parsed, text = old.configs[p.Name], old.texts[p.Name]
		}
		cfg = parsed
	}
	w.configs[p.Name], w.texts[p.Name] = cfg, text
	w.groups[p.Name] = []*targetgroup.Group{{Source: p.Name}}
	w.keys[p.Name] = map[string]string{}
}

func (w *wanted) addTarget(t target.Target, builder *labels.Builder) {
	if _, double := w.targets[t.ID]; double {
		return // the same target twice is scraped once
	}
	w.targets[t.ID] = t
	cfg := w.configs[t.Pool]
	if cfg == nil {
		w.invalid[t.ID] = w.badPool[t.Pool]
		if w.invalid[t.ID] == nil {
			w.invalid[t.ID] = fmt.Errorf("target %s: pool %q is not in the assignment", t.ID, t.Pool)
		}
		return
	}
	set, err := discovered(t)
	if err == nil {
		_, err = scrape.PopulateLabels(builder, cfg, set, nil)
	}
	if err == nil && t.ID == "" {
		err = errors.New("target without an ID")
	}
	if err != nil {
		w.invalid[t.ID] = err
		return
	}
	w.groups[t.Pool][0].Targets = append(w.groups[t.Pool][0].Targets, set)
	w.keys[t.Pool][t.ID] = endpointKey(set[model.SchemeLabel], set[model.AddressLabel], set[model.MetricsPathLabel])
}

// endpointKey tells whether two targets of one ID are the same scrape loop.
func endpointKey[S ~string](scheme, address, path S) string {
	return string(scheme) + "://" + string(address) + string(path)
}

func keyOf(t *scrape.Target) string {
	return endpointKey(t.GetValue(model.SchemeLabel), t.GetValue(model.AddressLabel), t.GetValue(model.MetricsPathLabel))
}

// pools are the names of the pools in use, sorted.
func (w *wanted) pools() []string { return slices.Sorted(maps.Keys(w.configs)) }
