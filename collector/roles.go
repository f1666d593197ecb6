package collector

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// roleBuilder builds the discoverer of one role in one namespace. The first
// error sticks.
type roleBuilder struct {
	sd        *kubernetes.SDConfig
	namespace string
	informers *informers
	events    *prometheus.CounterVec
	log       *slog.Logger

	synced []cache.InformerSynced
	err    error
}

// build returns the discoverer and the informer of the objects that it makes
// groups of.
func (b *roleBuilder) build() (discovery.Discoverer, cache.SharedIndexInformer) {
	meta := b.sd.AttachMetadata
	switch b.sd.Role {
	case kubernetes.RoleNode:
		nodes := b.watch("nodes", kubernetes.RoleNode, nil)
		return kubernetes.NewNode(b.log, nodes, b.events), nodes
	case kubernetes.RoleService:
		services := b.watch("services", kubernetes.RoleService, b.byNamespace())
		return kubernetes.NewService(b.log, services, b.namespaces(), b.events), services
	case kubernetes.RoleIngress:
		ingresses := b.watch("ingresses", kubernetes.RoleIngress, b.byNamespace())
		return kubernetes.NewIngress(b.log, ingresses, b.namespaces(), b.events), ingresses
	case kubernetes.RolePod:
		pods := b.watch("pods", kubernetes.RolePod, b.podIndexers())
		return kubernetes.NewPod(b.log, pods, b.nodes(), b.namespaces(), b.replicaSets(), b.jobs(),
			meta.Deployment, meta.Job, meta.CronJob, b.events), pods
	case kubernetes.RoleEndpointSlice:
		slices := b.watch("endpointslices", kubernetes.RoleEndpointSlice, b.endpointIndexers(cache.Indexers{indexService: indexSliceByService}, indexSliceByNode))
		services, pods := b.watch("services", kubernetes.RoleService, nil), b.watch("pods", kubernetes.RolePod, nil)
		return kubernetes.NewEndpointSlice(b.log, slices, services, pods, b.nodes(), b.namespaces(), b.replicaSets(), b.jobs(),
			meta.Deployment, meta.Job, meta.CronJob, b.events), slices
	case kubernetes.RoleEndpoint:
		endpoints := b.watch("endpoints", kubernetes.RoleEndpoint, b.endpointIndexers(cache.Indexers{indexPod: indexEndpointsByPod}, indexEndpointsByNode))
		services, pods := b.watch("services", kubernetes.RoleService, nil), b.watch("pods", kubernetes.RolePod, nil)
		//nolint:staticcheck // role endpoints is genuine scrape_configs syntax
		return kubernetes.NewEndpoints(b.log, endpoints, services, pods, b.nodes(), b.namespaces(), b.replicaSets(), b.jobs(),
			meta.Deployment, meta.Job, meta.CronJob, b.events), endpoints
	}
	b.err = fmt.Errorf("kubernetes_sd_configs: unknown role %q", b.sd.Role)
	return nil, nil
}

// watch returns a shared informer with the selectors of the role. After an
// error it returns an informer that is never run, so that the constructors of
// discovery/kubernetes have something to hold.
func (b *roleBuilder) watch(resource string, role kubernetes.Role, indexers cache.Indexers) cache.SharedIndexInformer {
	w := watched{resource: resource, namespace: b.namespace}
	if resource == "nodes" || resource == "namespaces" {
		w.namespace = ""
	}
	if role != "" {
		w.label, w.field = selector(b.sd, role)
	}
	informer, err := b.informers.get(w, indexers)
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, nil, 0, cache.Indexers{})
	}
	b.synced = append(b.synced, informer.HasSynced)
	return informer
}

func (b *roleBuilder) byNamespace() cache.Indexers {
	if !b.sd.AttachMetadata.Namespace {
		return nil
	}
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
}

func (b *roleBuilder) podIndexers() cache.Indexers {
	indexers, meta := cache.Indexers{}, b.sd.AttachMetadata
	if meta.Node {
		indexers[indexNode] = indexPodByNode
	}
	if meta.Namespace {
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	if meta.Deployment {
		indexers[indexReplicaSet] = indexPodByOwner("ReplicaSet")
	}
	if meta.Job || meta.CronJob {
		indexers[indexJob] = indexPodByOwner("Job")
	}
	return indexers
}

func (b *roleBuilder) endpointIndexers(indexers cache.Indexers, byNode cache.IndexFunc) cache.Indexers {
	if b.sd.AttachMetadata.Node {
		indexers[indexNode] = byNode
	}
	if b.sd.AttachMetadata.Namespace {
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	return indexers
}

// The informers below attach metadata. They are nil interfaces, not nil
// pointers, when the configuration does not ask for them: discovery/kubernetes
// compares with nil.

func (b *roleBuilder) nodes() cache.SharedInformer {
	if !b.sd.AttachMetadata.Node {
		return nil
	}
	return b.watch("nodes", kubernetes.RoleNode, nil)
}

func (b *roleBuilder) namespaces() cache.SharedInformer {
	if !b.sd.AttachMetadata.Namespace {
		return nil
	}
	return b.watch("namespaces", "", nil)
}

func (b *roleBuilder) replicaSets() cache.SharedInformer {
	if !b.sd.AttachMetadata.Deployment {
		return nil
	}
	return b.watch("replicasets", "", nil)
}

func (b *roleBuilder) jobs() cache.SharedInformer {
	if !b.sd.AttachMetadata.Job && !b.sd.AttachMetadata.CronJob {
		return nil
	}
	return b.watch("jobs", "", nil)
}
