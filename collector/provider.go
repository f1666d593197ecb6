package collector

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// provider is one distinct service discovery configuration and the jobs that
// use it.
//
// Prometheus' discovery manager would make one client and one set of watches
// for each; instead, the discoverers of discovery/kubernetes are built here
// from their exported constructors on informers that all providers share. So
// the API server sends each object once, it is stored once and stripped, and
// the client is made from the rest.Config with no credential written anywhere.
type provider struct {
	jobs []*job
	// static groups of a static_config; nil for Kubernetes discovery.
	static      []*targetgroup.Group
	discoverers []discovery.Discoverer
	synced      []cache.InformerSynced
	// expected lists the sources that the informers know; once synced holds,
	// the provider has delivered when each of them has been received.
	expected func() []string
}

// newProviders groups the jobs by discovery configuration, in order.
func newProviders(jobs []*job, f *informers, events *prometheus.CounterVec, log *slog.Logger) ([]*provider, error) {
	var providers []*provider
	var configs []discovery.Config
	for _, j := range jobs {
	configs:
		for _, sd := range j.config.ServiceDiscoveryConfigs {
			for i, known := range configs {
				if reflect.DeepEqual(known, sd) {
					providers[i].jobs = append(providers[i].jobs, j)
					continue configs
				}
			}
			p, err := newProvider(sd, f, events, log)
			if err != nil {
				return nil, fmt.Errorf("job_name %q: %w", j.name, err)
			}
			p.jobs = []*job{j}
			providers, configs = append(providers, p), append(configs, sd)
		}
	}
	return providers, nil
}

func newProvider(sd discovery.Config, f *informers, events *prometheus.CounterVec, log *slog.Logger) (*provider, error) {
	switch sd := sd.(type) {
	case discovery.StaticConfig:
		return &provider{static: sd}, nil
	case *kubernetes.SDConfig:
		return newKubernetesProvider(sd, f, events, log)
	}
	return nil, fmt.Errorf("%s discovery is not supported", sd.Name())
}

func newKubernetesProvider(sd *kubernetes.SDConfig, f *informers, events *prometheus.CounterVec, log *slog.Logger) (*provider, error) {
	p := &provider{}
	var primaries []cache.SharedIndexInformer
	namespaces := sd.NamespaceDiscovery.Names
	if len(namespaces) == 0 || sd.Role == kubernetes.RoleNode {
		namespaces = []string{corev1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		b := &roleBuilder{sd: sd, namespace: namespace, informers: f, events: events, log: log.With("role", string(sd.Role))}
		discoverer, primary := b.build()
		if b.err != nil {
			return nil, b.err
		}
		p.discoverers = append(p.discoverers, discoverer)
		p.synced = append(p.synced, b.synced...)
		primaries = append(primaries, primary)
	}
	prefix := sourcePrefix(sd.Role)
	p.expected = func() []string {
		var sources []string
		for _, informer := range primaries {
			for _, obj := range informer.GetStore().List() {
				key, err := cache.MetaNamespaceKeyFunc(obj)
				if err == nil && delivers(obj) {
					sources = append(sources, prefix+key)
				}
			}
		}
		return sources
	}
	return p, nil
}

// sourcePrefix is how discovery/kubernetes begins the source of a group.
func sourcePrefix(role kubernetes.Role) string {
	if role == kubernetes.RoleService {
		return "svc/"
	}
	return string(role) + "/"
}

// delivers reports whether discovery makes a group of the object at all: of a
// node without any address it makes none.
func delivers(obj any) bool {
	node, ok := obj.(*corev1.Node)
	return !ok || len(node.Status.Addresses) > 0
}

// run feeds sink until ctx ends. It calls delivered once, when every object
// known at that moment has been through sink.
func (p *provider) run(ctx context.Context, sink func(source string, group *targetgroup.Group, lb *labels.Builder), delivered func()) {
	lb := labels.NewBuilder(labels.EmptyLabels())
	if p.expected == nil {
		for _, g := range p.static {
			sink(g.Source, g, lb)
		}
		delivered()
		return
	}
	groups := make(chan []*targetgroup.Group) // closed by nobody: discoverers end with ctx
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, d := range p.discoverers {
		wg.Go(func() { d.Run(ctx, groups) })
	}
	seen := map[string]struct{}{}
	check := time.NewTicker(100 * time.Millisecond)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case batch := <-groups:
			for _, g := range batch {
				sink(g.Source, g, lb)
				if seen != nil {
					seen[g.Source] = struct{}{}
				}
			}
		case <-check.C:
			if seen != nil && p.complete(seen) {
				seen = nil
				check.Stop()
				delivered()
			}
		}
	}
}

func (p *provider) complete(seen map[string]struct{}) bool {
	for _, synced := range p.synced {
		if !synced() {
			return false
		}
	}
	for _, source := range p.expected() {
		if _, ok := seen[source]; !ok {
			return false
		}
	}
	return true
}

// selector returns what the configuration says to watch of one role.
func selector(sd *kubernetes.SDConfig, role kubernetes.Role) (label, field string) {
	for _, s := range sd.Selectors {
		if strings.EqualFold(string(s.Role), string(role)) {
			label, field = s.Label, s.Field
		}
	}
	return label, field
}
