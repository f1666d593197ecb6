package eventsink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
	// settled is how long a session must live for the backoff to start anew.
	settled = 10 * time.Second
)

// watcher follows the Events of one cluster. Its goroutine, run, owns
// everything but the state.
type watcher struct {
	cluster string
	rest    *rest.Config
	journal Journal
	ttl     time.Duration
	log     *slog.Logger
	metrics *clusterMetrics
	state   stateBox

	client *http.Client // nil until first used
	base   url.URL
	relist bool // the saved position has expired
	broken bool // the journal refused the last batch
}

func newWatcher(c Cluster, cfg Config, m *clusterMetrics) *watcher {
	w := &watcher{
		cluster: c.Name, rest: c.REST, journal: cfg.Journal, ttl: cfg.EventTTL,
		log: cfg.Logger.With("cluster", c.Name), metrics: m,
	}
	w.state.s = State{Cluster: c.Name, Phase: PhaseStarting, Since: time.Now()}
	return w
}

// run holds sessions until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.disconnect()
	failures := 0
	for ctx.Err() == nil {
		start := time.Now()
		err := w.session(ctx)
		w.metrics.connected.Set(0)
		if ctx.Err() != nil {
			return
		}
		w.metrics.failures[reason(err)].Inc()
		if time.Since(start) >= settled {
			failures = 0
		}
		wait := w.after(err, failures)
		failures++
		if !w.sleep(ctx, wait) {
			return
		}
	}
}

// after notes the end of a session and says how long to wait. The first
// ordinary end is followed by the next session at once.
func (w *watcher) after(err error, failures int) time.Duration {
	ordinary := errors.Is(err, errExpired) || errors.Is(err, errEnded) || errors.Is(err, errStalled) || errors.Is(err, record.ErrRelist)
	if errors.Is(err, errExpired) {
		w.relist = true
	}
	if _, ok := errors.AsType[journalError](err); ok && !errors.Is(err, record.ErrRelist) {
		w.broken = true
	}
	if ordinary && failures == 0 {
		w.log.Debug("watch of events ended", "err", err)
		return 0
	}
	w.state.set(func(s *State) { s.Phase, s.Connected, s.LastError = PhaseWaiting, false, err.Error() })
	wait := backoff(failures, rand.Float64())
	if e, ok := errors.AsType[*statusError](err); ok {
		wait = max(wait, e.retryAfter)
	}
	level := slog.LevelWarn
	if ordinary {
		level = slog.LevelDebug
	}
	w.log.Log(context.Background(), level, "watch of events broke; trying again", "err", err, "reason", reason(err), "wait", wait)
	return wait
}

// backoff grows from minBackoff to maxBackoff; random in [0,1) spreads it
// from half to the whole.
func backoff(failures int, random float64) time.Duration {
	d := maxBackoff
	if failures < 6 {
		d = min(d, minBackoff<<failures)
	}
	return d/2 + time.Duration(random*float64(d/2))
}

func (w *watcher) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// session runs from the saved position until something ends it; the error is
// never nil.
func (w *watcher) session(ctx context.Context) error {
	if err := w.connect(); err != nil {
		return err
	}
	p, ok, err := w.journal.Position(ctx, w.cluster)
	if err != nil {
		return journalError{err}
	}
	if !ok || w.relist {
		if p, err = w.list(ctx, p, ok); err != nil {
			return fmt.Errorf("list events in %s: %w", w.cluster, err)
		}
		w.relist = false
	}
	return fmt.Errorf("watch events in %s: %w", w.cluster, w.watch(ctx, p))
}

// connect prepares the client; an unreadable certificate is tried again.
func (w *watcher) connect() error {
	if w.client != nil {
		return nil
	}
	cfg := rest.CopyConfig(w.rest)
	cfg.Timeout = 0 // it would cut the watch; every request has its own
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("prepare the client of %s: %w", w.cluster, err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return fmt.Errorf("prepare the client of %s: %w", w.cluster, err)
	}
	w.client, w.base = client, *base
	return nil
}

func (w *watcher) disconnect() {
	if w.client != nil {
		w.client.CloseIdleConnections()
	}
	w.state.set(func(s *State) { s.Connected = false })
	w.metrics.connected.Set(0)
}

// get asks for Events; the caller closes the body.
func (w *watcher) get(ctx context.Context, query url.Values) (*http.Response, error) {
	u := w.base
	u.Path = path.Join(u.Path, "/api/v1/events")
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = fmt.Errorf("connect to %s: %w", w.base.Host, e.Err) // without the long query
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readStatus(resp)
	}
	return resp, nil
}

// observation is one version of an Event on its way into the journal.
type observation struct {
	record  record.Record
	key     record.EventKey
	arrived time.Time
}

// commit makes a batch durable, and the position behind it.
func (w *watcher) commit(ctx context.Context, batch []observation, more []record.Record, p record.Position) error {
	keys := make([]record.EventKey, len(batch))
	for i, o := range batch {
		keys[i] = o.key
	}
	seen, err := w.journal.Seen(ctx, w.cluster, keys)
	if err != nil {
		return journalError{err}
	}
	records := more
	var sum int64
	for _, o := range batch {
		last, ok := seen[o.key.UID]
		n := occurrences(o.record, last, ok)
		if n == 0 {
			continue
		}
		r := o.record
		r.Occurrences = n
		records = append(records, r)
		sum += n
		seen[o.key.UID] = record.Seen{Count: r.Count, LastTime: r.LastTime, ResourceVersion: r.Event.ResourceVersion}
	}
	added, err := w.journal.Append(ctx, records, p)
	if err != nil {
		return journalError{err}
	}
	w.metrics.records.Add(float64(added))
	w.metrics.occurrences.Add(float64(sum))
	w.metrics.lastCommit.SetToCurrentTime()
	mended := w.broken
	w.broken = false
	w.state.set(func(s *State) {
		if mended {
			s.LastError = ""
		}
		s.Records += int64(added)
		if len(batch) > 0 {
			s.LastEvent = batch[len(batch)-1].arrived
			s.Lag = time.Since(batch[0].arrived)
			w.metrics.lag.Set(s.Lag.Seconds())
		}
	})
	return nil
}
