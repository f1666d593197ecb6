package eventsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

const (
	pageSize    = 500
	pageTimeout = 2 * time.Minute
	pageTries   = 4
	maxPage     = 1 << 30 // bytes; decoded as it comes, never held
	// A batch is committed when it has so many Events or bytes.
	maxBatch      = 500
	maxBatchBytes = 4 << 20
)

// list stores every Event there is, page by page, and saves the position from
// which to watch: that of the first page, since later ones may come from
// newer snapshots when the first has expired.
func (w *watcher) list(ctx context.Context, old record.Position, hasOld bool) (record.Position, error) {
	w.state.set(func(s *State) { s.Phase, s.Connected = PhaseListing, false })
	start := time.Now()
	position := record.Position{Cluster: w.cluster, At: start}
	token, restarts := "", 0
	for {
		page, err := w.page(ctx, token)
		e, isStatus := errors.AsType[*statusError](err)
		switch {
		case errors.Is(err, errExpired) && isStatus && e.resume != "" && restarts < 100:
			token, restarts = e.resume, restarts+1
			continue
		case err != nil:
			return position, err
		}
		if position.ResourceVersion == "" {
			position.ResourceVersion = page.Metadata.ResourceVersion
		}
		if token = page.Metadata.Continue; token == "" {
			break
		}
	}
	if position.ResourceVersion == "" {
		return position, garbageError{errors.New("the list has no resourceVersion")}
	}
	var more []record.Record
	if hasOld && !old.At.IsZero() && start.Sub(old.At) > w.ttl {
		more = append(more, gap(old, start, w.ttl))
	}
	if err := w.commit(ctx, nil, more, position); err != nil {
		return position, err
	}
	if len(more) > 0 {
		w.metrics.gaps.Inc()
		w.state.set(func(s *State) { s.Gaps++ })
		w.log.Warn("watch of events was away for longer than events are kept; a gap record says so", "since", old.At)
	}
	w.log.Debug("events listed", "duration", time.Since(start))
	return position, nil
}

// listMeta is the envelope of a page.
type listMeta struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
}

// page reads and stores one page, with a few tries: a list can be a thousand
// pages long. What a broken try has stored, the next one skips.
func (w *watcher) page(ctx context.Context, token string) (meta listMeta, err error) {
	for try := range pageTries {
		if try > 0 && !w.sleep(ctx, backoff(try, 0.5)) {
			return meta, context.Cause(ctx)
		}
		meta, err = w.readPage(ctx, token)
		if err == nil || ctx.Err() != nil {
			return meta, err
		}
		switch reason(err) {
		case "network", "garbage":
		case "server", "throttled":
			if e, ok := errors.AsType[*statusError](err); ok && e.retryAfter > 0 && !w.sleep(ctx, e.retryAfter) {
				return meta, context.Cause(ctx)
			}
		default:
			return meta, err
		}
		if try == 0 && token == "" {
			return meta, err // nothing to lose: the session's own backoff does it
		}
	}
	return meta, err
}

func (w *watcher) readPage(ctx context.Context, token string) (meta listMeta, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if token != "" {
		query.Set("continue", token)
	}
	resp, err := w.get(ctx, query)
	if err != nil {
		return meta, err
	}
	defer resp.Body.Close()
	b := batcher{w: w}
	meta, err = decodeList(io.LimitReader(resp.Body, maxPage), func(raw json.RawMessage) error {
		b.add(raw, time.Now())
		if b.full() {
			return b.flush(ctx, record.Position{})
		}
		return nil
	})
	if err != nil {
		return meta, err
	}
	return meta, b.flush(ctx, record.Position{})
}

// decodeList hands over one item at a time.
func decodeList(r io.Reader, item func(json.RawMessage) error) (meta listMeta, err error) {
	dec := json.NewDecoder(r)
	if err := expect(dec, json.Delim('{')); err != nil {
		return meta, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return meta, decodeError(err)
		}
		switch key {
		case "metadata":
			err = dec.Decode(&meta.Metadata)
		case "items":
			if err := decodeItems(dec, item); err != nil {
				return meta, err
			}
		default:
			var skip json.RawMessage
			err = dec.Decode(&skip)
		}
		if err != nil {
			return meta, decodeError(err)
		}
	}
	return meta, expect(dec, json.Delim('}'))
}

func decodeItems(dec *json.Decoder, item func(json.RawMessage) error) error {
	token, err := dec.Token()
	if err != nil {
		return decodeError(err)
	}
	if token == nil {
		return nil // "items": null
	}
	if token != json.Delim('[') {
		return garbageError{fmt.Errorf("items is %v", token)}
	}
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return decodeError(err)
		}
		if err := item(raw); err != nil {
			return err
		}
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	if err != nil {
		return decodeError(err)
	}
	if token != want {
		return garbageError{fmt.Errorf("%v instead of %v", token, want)}
	}
	return nil
}

// decodeError tells nonsense from a connection that broke.
func decodeError(err error) error {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return garbageError{err}
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return garbageError{err}
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
