package eventsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

const (
	// stallAfter is how long a watch may be silent. API servers send
	// bookmarks about once a minute, but for Events many send none, as these
	// bypass the watch cache: then a quiet cluster is connected anew, which
	// costs one request.
	stallAfter = 2 * time.Minute
	// startTimeout is how long the answer to the watch request may take.
	startTimeout = 30 * time.Second
	// watchFor is asked of the API server, spread up to twice that.
	watchFor = 5 * time.Minute
	// flushAfter is how long an Event waits for others to share its commit.
	flushAfter = 200 * time.Millisecond
	// saveEvery is how often a position is saved that no record came with.
	saveEvery = 10 * time.Second
	// maxFrame bounds one watch event; etcd bounds objects to 1.5 MiB.
	maxFrame = 8 << 20
	// frameQueue bounds the frames between the reader and the journal; when it
	// is full the connection is not read.
	frameQueue = 64
)

// frame is one line of a watch.
type frame struct {
	Type    string          `json:"type"`
	Object  json.RawMessage `json:"object"`
	arrived time.Time
}

// watch follows from p until something ends it; the error is never nil.
func (w *watcher) watch(ctx context.Context, p record.Position) error {
	seconds := int(watchFor.Seconds() * (1 + rand.Float64()))
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+time.Minute)
	defer cancel()
	body, err := w.startWatch(ctx, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"resourceVersion": {p.ResourceVersion}, "timeoutSeconds": {strconv.Itoa(seconds)},
	})
	if err != nil {
		return err
	}
	w.metrics.connected.Set(1)
	w.state.set(func(s *State) {
		s.Phase, s.Connected = PhaseWatching, true
		if !w.broken { // a store that fails is only mended by a commit
			s.LastError = ""
		}
	})
	frames, result := make(chan frame, frameQueue), make(chan error, 1)
	go func() {
		defer close(frames)
		result <- readFrames(ctx, body, frames)
	}()
	err = w.follow(ctx, p, frames, result)
	cancel()
	_ = body.Close() // wakes the reader
	for range frames {
	}
	return err
}

// startWatch waits for the headers for startTimeout only.
func (w *watcher) startWatch(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(startTimeout, func() {
		cancel(fmt.Errorf("no answer from %s within %s", w.base.Host, startTimeout))
	})
	resp, err := w.get(ctx, query)
	if !timer.Stop() && err == nil { // it fired just now and has cut the body
		err = context.Cause(ctx)
		_ = resp.Body.Close()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	return cancelBody{resp, cancel}, nil
}

// cancelBody ends the request with its body.
type cancelBody struct {
	resp   *http.Response
	cancel context.CancelCauseFunc
}

func (b cancelBody) Read(p []byte) (int, error) { return b.resp.Body.Read(p) }

func (b cancelBody) Close() error {
	b.cancel(nil)
	return b.resp.Body.Close()
}

// readFrames hands over what comes until the body ends or is nonsense.
func readFrames(ctx context.Context, body io.Reader, frames chan<- frame) error {
	limited := &io.LimitedReader{R: body}
	dec := json.NewDecoder(limited)
	for {
		limited.N = maxFrame
		var f frame
		if err := dec.Decode(&f); err != nil {
			switch {
			case limited.N <= 0:
				return garbageError{fmt.Errorf("a watch event is longer than %d bytes", maxFrame)}
			case errors.Is(err, io.EOF):
				return errEnded
			default:
				return decodeError(err)
			}
		}
		f.arrived = time.Now()
		select {
		case frames <- f:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow moves frames into the journal.
func (w *watcher) follow(ctx context.Context, p record.Position, frames <-chan frame, result <-chan error) error {
	b := batcher{w: w}
	saved := p
	p.At = time.Now() // the watch stands, and all since p will come
	flush := func(ctx context.Context) error {
		err := b.flush(ctx, p)
		saved = p
		return err
	}
	stall, tick := time.NewTimer(stallAfter), time.NewTicker(saveEvery)
	defer stall.Stop()
	defer tick.Stop()
	var due <-chan time.Time // set while the batch holds something
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				return w.drain(ctx, &b, p, <-result)
			}
			stall.Reset(stallAfter)
			version, err := w.take(&b, f)
			if err != nil {
				return w.drain(ctx, &b, p, err)
			}
			if version != "" {
				p.ResourceVersion = version
			}
			p.At = f.arrived
			if b.full() {
				due = nil
				if err := flush(ctx); err != nil {
					return err
				}
			} else if due == nil && len(b.batch) > 0 {
				due = time.After(flushAfter)
			}
		case <-due:
			due = nil
			if err := flush(ctx); err != nil {
				return err
			}
		case <-tick.C:
			if len(b.batch) == 0 && (p.ResourceVersion != saved.ResourceVersion || p.At.Sub(saved.At) > saveEvery) {
				if err := flush(ctx); err != nil {
					return err
				}
			}
		case <-stall.C:
			return errStalled
		case <-ctx.Done():
			return w.drain(ctx, &b, p, context.Cause(ctx))
		}
	}
}

// drain stores what had arrived when the watch ended because of cause.
func (w *watcher) drain(ctx context.Context, b *batcher, p record.Position, cause error) error {
	if len(b.batch) == 0 {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := b.flush(ctx, p); err != nil {
		return err
	}
	return cause
}

// take puts a frame into the batch and returns its resource version.
func (w *watcher) take(b *batcher, f frame) (string, error) {
	switch f.Type {
	case "ADDED", "MODIFIED":
		return b.add(f.Object, f.arrived), nil
	case "DELETED", "BOOKMARK":
		var o struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(f.Object, &o); err != nil {
			return "", garbageError{err}
		}
		return o.Metadata.ResourceVersion, nil
	case "ERROR":
		var s status
		if err := json.Unmarshal(f.Object, &s); err != nil {
			return "", garbageError{err}
		}
		if s.Code == http.StatusGone || s.Reason == "Expired" || s.Reason == "Gone" {
			return "", errExpired
		}
		return "", &statusError{code: s.Code, message: s.Message}
	}
	return "", garbageError{fmt.Errorf("a watch event of type %q", f.Type)}
}

// batcher gathers observations for one commit.
type batcher struct {
	w     *watcher
	batch []observation
	bytes int
}

// add returns the resource version; what cannot be decoded is counted and
// left out, or it would be met again for ever.
func (b *batcher) add(raw json.RawMessage, arrived time.Time) string {
	b.w.metrics.received.Inc()
	r, key, err := normalise(b.w.cluster, raw)
	if err != nil {
		b.w.metrics.undecodable.Inc()
		b.w.log.Warn("event was left out", "err", err)
		return ""
	}
	b.batch = append(b.batch, observation{record: r, key: key, arrived: arrived})
	b.bytes += len(raw) + len(r.Raw)
	return r.Event.ResourceVersion
}

func (b *batcher) full() bool { return len(b.batch) >= maxBatch || b.bytes >= maxBatchBytes }

// flush commits the batch and empties it.
func (b *batcher) flush(ctx context.Context, p record.Position) error {
	if len(b.batch) == 0 && p.Cluster == "" {
		return nil
	}
	if err := b.w.commit(ctx, b.batch, nil, p); err != nil {
		return err
	}
	clear(b.batch)
	b.batch, b.bytes = b.batch[:0], 0
	return nil
}
