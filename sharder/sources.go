package sharder

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// Source reads the target list of one cluster's collector. List is called from
// one goroutine at a time and must honour its context.
type Source struct {
	Cluster string
	List    func(ctx context.Context) (target.List, error)
	// Errors says why the last fetch of a target through the gateway failed, by
	// target ID. It may be nil, and called from several goroutines.
	Errors func(ctx context.Context) (map[string]string, error)
}

// Bounds of what is read of a collector's errors, and shown of one.
const (
	reasonsLimit = 8 << 20
	reasonLimit  = 400
)

// httpErrors reads the errors beside a collector's list of targets. A collector
// that does not serve them gives none.
func httpErrors(ctx context.Context, list string, client *http.Client) (map[string]string, error) {
	base, ok := strings.CutSuffix(list, "/targets")
	if !ok {
		return nil, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/errors", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusNotFound {
		return nil, answer.Body.Close()
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, reasonsLimit), answer.Body}
	var out struct {
		Errors map[string]string `json:"errors"`
	}
	err = decodeAnswer(answer, &out)
	return out.Errors, err
}

// HTTPSource reads url, a collector's /clusters/<cluster>/targets, and asks
// for the body only when it changed. Keep one for as long as the cluster is
// there: it remembers the last list.
func HTTPSource(cluster, url string, client *http.Client) Source {
	var mu sync.Mutex // the sharder asks one at a time, unless a cluster left and came back
	var etag string
	var last target.List
	errors := func(ctx context.Context) (map[string]string, error) { return httpErrors(ctx, url, client) }
	return Source{Cluster: cluster, Errors: errors, List: func(ctx context.Context) (target.List, error) {
		if !mu.TryLock() {
			return target.List{}, fmt.Errorf("list targets of cluster %s: an earlier attempt has not ended", cluster)
		}
		defer mu.Unlock()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return target.List{}, fmt.Errorf("list targets of cluster %s: %w", cluster, err)
		}
		if etag != "" {
			req.Header.Set("If-None-Match", etag)
		}
		answer, err := client.Do(req)
		if err != nil {
			return target.List{}, fmt.Errorf("list targets of cluster %s: %w", cluster, err)
		}
		if answer.StatusCode == http.StatusNotModified && etag != "" {
			return last, answer.Body.Close()
		}
		var list target.List
		tag := answer.Header.Get("ETag")
		if err := decodeAnswer(answer, &list); err != nil {
			return target.List{}, fmt.Errorf("list targets of cluster %s: %w", cluster, err)
		}
		etag, last = tag, list
		return list, nil
	}}
}

// listing is the latest news of one cluster.
type listing struct {
	list    target.List // the last good one
	good    time.Time   // when that was read; zero before
	err     error       // of the last attempt
	pending bool        // an attempt is under way
}

// lists reads every cluster in a goroutine of its own. A cluster that hangs
// delays no cycle after its first one: it is not asked again, nor waited for,
// until its attempt has ended.
type lists struct {
	timeout time.Duration // of one attempt
	wait    time.Duration // of one refresh
	now     func() time.Time

	running   sync.WaitGroup
	mu        sync.Mutex
	byCluster map[string]*listing
}

// refresh starts an attempt for each cluster that has none under way, waits a
// little, and gives what is known of all.
func (l *lists) refresh(ctx context.Context, sources []Source) map[string]listing {
	var started []chan struct{}
	l.mu.Lock()
	current := make(map[string]*listing, len(sources))
	for _, src := range sources {
		entry := l.byCluster[src.Cluster]
		if entry == nil {
			entry = &listing{}
		}
		current[src.Cluster] = entry
		if entry.pending {
			continue
		}
		entry.pending = true
		done := make(chan struct{}) // closed by the attempt
		started = append(started, done)
		l.running.Go(func() {
			defer close(done)
			l.attempt(ctx, src, entry)
		})
	}
	l.byCluster = current
	l.mu.Unlock()

	patience := time.NewTimer(l.wait)
	defer patience.Stop()
wait:
	for _, done := range started {
		select {
		case <-done:
		case <-patience.C:
			break wait
		case <-ctx.Done():
			break wait
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]listing, len(current))
	for cluster, entry := range current {
		out[cluster] = *entry
	}
	return out
}

func (l *lists) attempt(ctx context.Context, src Source, entry *listing) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	list, err := src.List(ctx)
	if err == nil && list.Cluster != src.Cluster {
		err = fmt.Errorf("list targets of cluster %s: the collector answers for cluster %q", src.Cluster, list.Cluster)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.pending, entry.err = false, err
	if err == nil {
		entry.list, entry.good = list, l.now()
	}
}
