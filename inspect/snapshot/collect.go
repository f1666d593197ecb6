package snapshot

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Source is one cluster and the way to it.
type Source struct {
	// Name is the value of the cluster label.
	Name   string
	Config *rest.Config
	// Err is why there is no Config: the snapshot then says so.
	Err error
}

// Options bound a collection. The zero value of a field takes its default.
type Options struct {
	// Timeout bounds the whole collection of one cluster: 60 s.
	Timeout time.Duration
	// RequestTimeout bounds one request or one page of a list: 15 s.
	RequestTimeout time.Duration
	// ProbeTimeout bounds one direct request to a control plane pod: 3 s.
	ProbeTimeout time.Duration
	// PageSize is the page length of lists: 1000.
	PageSize int64
	// MaxItems bounds one list; a longer one is an error: 200,000.
	MaxItems int
	// MetricsWindow is the least time between the two reads of /metrics: 5 s.
	// Below zero, there is one read only.
	MetricsWindow time.Duration
	// UserAgent names the reader in the cluster's audit log.
	UserAgent string
	// Progress, when set, is called after each read, from several goroutines.
	Progress func(Progress)
}

// Progress says how far the collection of one cluster has come.
type Progress struct {
	Cluster string
	Read    Resource
	Done    int
	Total   int
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 15*time.Second)
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, 3*time.Second)
	o.PageSize = cmp.Or(o.PageSize, 1000)
	o.MaxItems = cmp.Or(o.MaxItems, 200_000)
	o.MetricsWindow = cmp.Or(o.MetricsWindow, 5*time.Second)
	o.UserAgent = cmp.Or(o.UserAgent, "fleetwatch-inspect")
	return o
}

// concurrency is how many reads of one cluster run at once.
const concurrency = 6

// abandonAfter is how long past its deadline a collection may still be
// finishing: a credential plugin that hangs does not honour any context.
const abandonAfter = 3 * time.Second

// Collect reads one cluster. It returns within Options.Timeout and a few
// seconds, and always a snapshot: trouble stands in Unreachable and Reads.
func Collect(ctx context.Context, source Source, options Options) *Snapshot {
	options = options.withDefaults()
	if source.Err != nil || source.Config == nil {
		now := time.Now().UTC()
		problem := classify(cmp.Or(source.Err, errors.New("no client configuration")))
		problem.Reason = ReasonConfig
		return &Snapshot{Cluster: source.Name, Started: now, Finished: now, Reads: map[Resource]Read{}, Unreachable: problem}
	}
	ctx, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()
	started := time.Now()
	done := make(chan *Snapshot, 1) // closed by nobody; one value
	go func() { done <- collect(ctx, source, options) }()
	select {
	case snap := <-done:
		return snap
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case snap := <-done:
		return snap
	case <-timer.C:
		return &Snapshot{
			Cluster: source.Name, Server: serverName(source.Config), Started: started, Finished: time.Now(),
			Reads: map[Resource]Read{},
			Unreachable: &Problem{ReasonTimeout, fmt.Sprintf(
				"no answer within %s, not even to cancellation; look at the credential plugin of the kubeconfig", options.Timeout)},
		}
	}
}

func collect(ctx context.Context, source Source, options Options) *Snapshot {
	snap := &Snapshot{
		Cluster: source.Name, Server: serverName(source.Config),
		Started: time.Now().UTC(), Reads: map[Resource]Read{},
	}
	defer func() { snap.Finished = time.Now().UTC() }()
	r := &reader{snap: snap, options: options}
	r.readKubeconfig(source.Config)
	if err := r.connect(source.Config); err != nil {
		snap.Unreachable = &Problem{ReasonConfig, shorten(err.Error(), 400)}
		return snap
	}
	defer r.http.CloseIdleConnections()
	if problem := r.readVersion(ctx); problem != nil {
		snap.Unreachable = problem
		return snap
	}
	r.readAll(ctx)
	return snap
}

// reader is one collection. Tasks run at the same time; each writes fields of
// the snapshot that no other task touches, or holds mu.
type reader struct {
	options Options
	http    *http.Client
	kube    kubernetes.Interface
	base    *url.URL
	// roots are the authorities of the kubeconfig, nil for the system's.
	roots *x509.CertPool

	mu   sync.Mutex // guards snap.Reads, snap.Scrapes, snap.Probes, snap.Serving, done
	snap *Snapshot
	done int
}

func (r *reader) connect(config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.UserAgent = r.options.UserAgent
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS = -1 // the number of reads at once is the limit
	var err error
	if r.http, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("read the kubeconfig's credentials: %w", err)
	}
	if r.kube, err = kubernetes.NewForConfigAndClient(config, r.http); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	r.base, _, err = rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("read the server address: %w", err)
	}
	return nil
}

// readAll runs every read but the version. Pods come with the first ones,
// since the probes of control plane pods need them.
func (r *reader) readAll(ctx context.Context) {
	lists := r.lists()
	var group errgroup.Group
	group.SetLimit(concurrency)
	var first scraped
	group.Go(func() error { first = r.scrapeAPIServer(ctx); return nil })
	group.Go(func() error { r.readHealth(ctx, Readyz, &r.snap.Readyz); return nil })
	group.Go(func() error { r.readHealth(ctx, Livez, &r.snap.Livez); return nil })
	group.Go(func() error { r.readAPIServices(ctx); return nil })
	for _, list := range lists {
		group.Go(func() error { list(ctx); return nil })
	}
	_ = group.Wait() // tasks record their errors and return none
	r.scrapeAgain(ctx, append(r.probePods(ctx), first))
}

// record notes how a read went. It is called once for every resource.
func (r *reader) record(resource Resource, started time.Time, items int, err error) {
	r.mu.Lock()
	r.snap.Reads[resource] = Read{At: started.UTC(), Took: time.Since(started), Items: items, Problem: classify(err)}
	r.done++
	progress := Progress{Cluster: r.snap.Cluster, Read: resource, Done: r.done, Total: len(AllReads())}
	r.mu.Unlock()
	if r.options.Progress != nil {
		r.options.Progress(progress)
	}
}

// serverName is the API server's address without user information and query.
func serverName(config *rest.Config) string {
	if config == nil {
		return ""
	}
	parsed, err := url.Parse(config.Host)
	if err != nil || parsed.Host == "" {
		return config.Host
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}
