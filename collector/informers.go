package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetwatch-io/fleetwatch/fleet"
)

// listTimeout is the deadline of one list request. Watches end when the server
// ends them; HTTP/2 pings and the probe notice a server that hangs.
const listTimeout = time.Minute

const (
	firstPause, longestPause = 800 * time.Millisecond, 15 * time.Second
	// stopGrace is what informers have to end.
	stopGrace = 500 * time.Millisecond
)

// watched names one watch: what, where, and with which selectors.
type watched struct {
	resource, namespace, label, field string
}

// informers shares one watch among all discoveries that want the same objects.
// It is built by one goroutine and read-only once run.
type informers struct {
	client kubernetes.Interface
	server string
	health *health
	all    map[watched]cache.SharedIndexInformer
}

func newInformers(client kubernetes.Interface, server string, h *health) *informers {
	return &informers{client: client, server: server, health: h, all: map[watched]cache.SharedIndexInformer{}}
}

// get returns the informer of w, with at least the given indexers.
func (f *informers) get(w watched, indexers cache.Indexers) (cache.SharedIndexInformer, error) {
	informer, ok := f.all[w]
	if !ok {
		lw, example := f.listWatch(w)
		if lw == nil {
			return nil, fmt.Errorf("watch %s: unknown resource", w.resource)
		}
		informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, f.client), example, 0, cache.Indexers{})
		if err := errors.Join(informer.SetTransform(strip), informer.SetWatchErrorHandlerWithContext(watchError)); err != nil {
			return nil, fmt.Errorf("watch %s: %w", w.resource, err)
		}
		f.all[w] = informer
	}
	missing := cache.Indexers{}
	for name, index := range indexers {
		if _, ok := informer.GetIndexer().GetIndexers()[name]; !ok {
			missing[name] = index
		}
	}
	if err := informer.AddIndexers(missing); err != nil {
		return nil, fmt.Errorf("index %s: %w", w.resource, err)
	}
	return informer, nil
}

// run runs every informer until ctx ends. An informer that does not end soon
// after, because client-go pauses deaf after an error within a watch, is left
// to end alone.
func (f *informers) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, informer := range f.all {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	<-ctx.Done()
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopGrace):
	}
}

// watchError keeps client-go from logging every retry. Nothing is lost: each
// request reports its own outcome.
func watchError(context.Context, *cache.Reflector, error) {}

func (f *informers) report(w watched, err error) {
	if err == nil {
		f.health.report("watch "+w.resource, "")
		return
	}
	f.health.report("watch "+w.resource, fleet.Explain(f.server, err))
}

// insist repeats a watch request that client-go would repeat, with pauses that
// end with ctx: the reflector's own do not, and would hold up the end of the
// process for up to a minute.
func (f *informers) insist(ctx context.Context, request func() (watch.Interface, error)) (watch.Interface, error) {
	pause := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: 100, Cap: longestPause}
	for {
		events, err := request()
		if err == nil || !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err) {
			return events, err
		}
		timer := time.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

type listFunc func(context.Context, metav1.ListOptions) (runtime.Object, error)

type watchFunc func(context.Context, metav1.ListOptions) (watch.Interface, error)

// listWatch makes the requests of one informer; nil for an unknown resource.
func (f *informers) listWatch(w watched) (*cache.ListWatch, runtime.Object) {
	list, watchIt, example := f.requests(w)
	if list == nil {
		return nil, nil
	}
	kept := &census{what: w.resource}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = w.label, w.field
			if o.Limit = pageSize; o.Continue == "" {
				kept.restart()
			}
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // an API server's watch cache knows no pages
			}
			limited, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			objects, err := list(limited, o)
			if err == nil {
				err = kept.page(objects)
			}
			if ctx.Err() == nil {
				f.report(w, err)
			}
			return objects, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = w.label, w.field
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				kept.restart()
			}
			events, err := f.insist(ctx, func() (watch.Interface, error) {
				events, err := watchIt(ctx, o)
				if ctx.Err() == nil {
					f.report(w, err)
				}
				return events, err
			})
			if err != nil {
				return nil, err
			}
			return countEvents(events, kept, func(err error) { f.report(w, err) }), nil
		},
	}, example
}

func (f *informers) requests(w watched) (listFunc, watchFunc, runtime.Object) {
	switch w.resource {
	case "pods":
		c := f.client.CoreV1().Pods(w.namespace)
		return lister(c.List), c.Watch, &corev1.Pod{}
	case "nodes":
		c := f.client.CoreV1().Nodes()
		return lister(c.List), c.Watch, &corev1.Node{}
	case "namespaces":
		c := f.client.CoreV1().Namespaces()
		return lister(c.List), c.Watch, &corev1.Namespace{}
	case "services":
		c := f.client.CoreV1().Services(w.namespace)
		return lister(c.List), c.Watch, &corev1.Service{}
	case "endpoints":
		c := f.client.CoreV1().Endpoints(w.namespace)
		return lister(c.List), c.Watch, &corev1.Endpoints{} //nolint:staticcheck // role endpoints is genuine scrape_configs syntax
	case "endpointslices":
		c := f.client.DiscoveryV1().EndpointSlices(w.namespace)
		return lister(c.List), c.Watch, &discoveryv1.EndpointSlice{}
	case "ingresses":
		c := f.client.NetworkingV1().Ingresses(w.namespace)
		return lister(c.List), c.Watch, &networkingv1.Ingress{}
	case "replicasets":
		c := f.client.AppsV1().ReplicaSets(w.namespace)
		return lister(c.List), c.Watch, &appsv1.ReplicaSet{}
	case "jobs":
		c := f.client.BatchV1().Jobs(w.namespace)
		return lister(c.List), c.Watch, &batchv1.Job{}
	}
	return nil, nil, nil
}

// lister forgets the concrete type of a list.
func lister[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error)) listFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}
