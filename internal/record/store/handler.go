package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
	"github.com/fleetwatch-io/fleetwatch/internal/serve"
)

const (
	defaultLimit  = 100
	searchTimeout = 30 * time.Second
	// Heartbeat is how often a stream that follows sends a blank line when
	// there is nothing else to send.
	Heartbeat = 15 * time.Second
	// writeTimeout cuts a client that does not read.
	writeTimeout = time.Minute
)

// Handler serves GET requests for records:
//
//	cluster  only this one; may be repeated
//	since    a duration back from now (90m, 2h, 7d), or a time; inclusive
//	until    the same; exclusive
//	query    the query language of package query
//	limit    1 to MaxLimit, 100 by default
//	after    "next" of the page before
//	follow   true: a stream of the newest records and then of every new one
//
// The answer is a Page; with follow it is one record to a line, blank lines
// as heartbeat, and a last line {"error": ...} when the stream breaks. With
// follow the limit may be 0. Streams end when done is closed.
func Handler(s Searcher, done <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			serve.Error(w, http.StatusMethodNotAllowed, errors.New("records are read with GET"))
			return
		}
		values, err := url.ParseQuery(req.URL.RawQuery) // req.URL.Query leaves out what is malformed
		if err != nil {
			serve.Error(w, http.StatusBadRequest, fmt.Errorf("read the parameters: %w; encode them as a URL's query", err))
			return
		}
		q, follow, err := parseRequest(values, time.Now())
		if err != nil {
			serve.Error(w, http.StatusBadRequest, err)
			return
		}
		if follow {
			stream(w, req, s, q, done)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), searchTimeout)
		defer cancel()
		page, err := s.Search(ctx, q)
		switch {
		case err == nil:
			serve.JSON(w, http.StatusOK, page)
		case errors.Is(err, ErrCursor):
			serve.Error(w, http.StatusBadRequest, fmt.Errorf("after: %w", err))
		case ctx.Err() != nil:
			serve.Error(w, http.StatusGatewayTimeout, fmt.Errorf("no answer within %s; narrow the search with since or cluster", searchTimeout))
		default:
			serve.Error(w, http.StatusInternalServerError, err)
		}
	})
}

func parseRequest(v url.Values, now time.Time) (q Search, follow bool, err error) {
	for name := range v {
		switch name {
		case "cluster", "since", "until", "query", "limit", "after", "follow":
		default:
			return q, false, fmt.Errorf("no parameter %q; there are cluster, since, until, query, limit, after and follow", name)
		}
	}
	q = Search{Clusters: v["cluster"], Limit: defaultLimit, After: v.Get("after")}
	if text := v.Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			return q, false, fmt.Errorf("follow: want true or false, got %q", text)
		}
	}
	if q.Since, err = ParseTime(v.Get("since"), now); err != nil {
		return q, false, fmt.Errorf("since: %w", err)
	}
	if q.Until, err = ParseTime(v.Get("until"), now); err != nil {
		return q, false, fmt.Errorf("until: %w", err)
	}
	if q.Query, err = query.Parse(v.Get("query")); err != nil {
		return q, false, err
	}
	if text := v.Get("limit"); text != "" {
		least := 1
		if follow {
			least = 0
		}
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < least || q.Limit > MaxLimit {
			return q, false, fmt.Errorf("limit: want %d to %d, got %q", least, MaxLimit, text)
		}
	}
	return q, follow, nil
}

func stream(w http.ResponseWriter, req *http.Request, s Searcher, q Search, done <-chan struct{}) {
	ctx, cancel := context.WithCancel(req.Context())
	lines := make(chan []record.Record) // closed by nobody; both ends watch ctx
	result := make(chan error, 1)
	var follower sync.WaitGroup
	follower.Go(func() {
		result <- s.Follow(ctx, q, func(list []record.Record) error {
			select {
			case lines <- list:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	defer follower.Wait() // after the cancel below
	defer cancel()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	send := func(values ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
		for _, v := range values {
			if err := enc.Encode(v); err != nil {
				return false
			}
		}
		return out.Flush() == nil
	}
	if !send() { // the header tells the client that the query is good
		return
	}
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	for {
		select {
		case list := <-lines:
			values := make([]any, len(list))
			for i := range list {
				values[i] = list[i]
			}
			if !send(values...) {
				return
			}
		case err := <-result:
			if err != nil && req.Context().Err() == nil {
				send(map[string]string{"error": err.Error()})
			}
			return
		case <-beat.C:
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // as above
			if _, err := w.Write([]byte("\n")); err != nil || out.Flush() != nil {
				return
			}
		case <-done:
			return
		case <-req.Context().Done():
			return
		}
	}
}
