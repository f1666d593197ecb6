package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers from memory and notes what it was asked.
type fake struct {
	asked  store.Search
	page   store.Page
	err    error
	follow func(ctx context.Context, emit func([]record.Record) error) error
}

func (f *fake) Search(_ context.Context, q store.Search) (store.Page, error) {
	f.asked = q
	return f.page, f.err
}

func (f *fake) Follow(ctx context.Context, q store.Search, emit func([]record.Record) error) error {
	f.asked = q
	return f.follow(ctx, emit)
}

func get(t *testing.T, h http.Handler, q string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/events?"+q, nil))
	return w
}

func TestHandlerSearch(t *testing.T) {
	f := &fake{page: store.Page{Items: []record.Record{{ID: "1", Kind: "event", Cluster: "a"}}, Next: "n"}}
	w := get(t, store.Handler(f, nil), "cluster=a&cluster=b&since=1h&until=2026-11-30&limit=5&after=x&query="+url.QueryEscape("reason:BackOff"))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	var page store.Page
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Items) != 1 || page.Next != "n" {
		t.Error(page, err)
	}
	q := f.asked
	if len(q.Clusters) != 2 || q.Limit != 5 || q.After != "x" || q.Query.String() != `reason:"BackOff"` ||
		q.Until != time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC) || time.Since(q.Since) < time.Hour {
		t.Errorf("asked %+v", q)
	}
}

func TestHandlerBadRequests(t *testing.T) {
	f := &fake{}
	for q, want := range map[string]string{
		"since=x":             `since: want a duration such as 1h`,
		"since=-1h":           `since: want a duration`,
		"until=0001-01-01":    `until: want a duration`,
		"query=" + "foo%3Ax":  `query, column 1: no field "foo"`,
		"limit=0":             `limit: want 1 to 1000, got "0"`,
		"limit=5000":          `limit: want 1 to 1000`,
		"follow=x":            `follow: want true or false`,
		"filter=x":            `no parameter "filter"`,
		"follow=true&limit=x": `limit: want 0 to 1000`,
	} {
		w := get(t, store.Handler(f, nil), q)
		var body struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusBadRequest || !strings.HasPrefix(body.Error, want) {
			t.Errorf("%s: %d %s", q, w.Code, body.Error)
		}
	}
	f.err = store.ErrCursor
	if w := get(t, store.Handler(f, nil), "query=%zz"); w.Code != http.StatusBadRequest {
		t.Errorf("a malformed URL query: %d %s", w.Code, w.Body)
	}
	if w := get(t, store.Handler(f, nil), "after=x"); w.Code != http.StatusBadRequest {
		t.Error(w.Code)
	}
	f.err = errors.New("disk on fire")
	if w := get(t, store.Handler(f, nil), ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "disk on fire") {
		t.Error(w.Code, w.Body)
	}
	w := httptest.NewRecorder()
	store.Handler(f, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Error(w.Code)
	}
}

func TestHandlerFollow(t *testing.T) {
	fail := make(chan struct{})
	f := &fake{follow: func(ctx context.Context, emit func([]record.Record) error) error {
		if err := emit([]record.Record{{ID: "1"}, {ID: "2"}}); err != nil {
			return err
		}
		<-fail
		return errors.New("store closed")
	}}
	srv := httptest.NewServer(store.Handler(f, nil))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"?follow=true&limit=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	var got []string
	for lines.Scan() {
		if got = append(got, lines.Text()); len(got) == 2 {
			close(fail)
		}
	}
	if len(got) != 3 || !strings.Contains(got[0], `"id":"1"`) || got[2] != `{"error":"store closed"}` {
		t.Errorf("%q", got)
	}
}

// pipeWriter is a ResponseWriter whose body can be read while it grows.
type pipeWriter struct {
	*io.PipeWriter
	header http.Header
}

func (w pipeWriter) Header() http.Header { return w.header }
func (pipeWriter) WriteHeader(int)       {}
func (pipeWriter) Flush()                {}

func TestHandlerHeartbeatAndDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{follow: func(ctx context.Context, _ func([]record.Record) error) error {
			<-ctx.Done()
			return nil
		}}
		r, w := io.Pipe()
		done := make(chan struct{})
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?follow=true", nil)
		go func() {
			store.Handler(f, done).ServeHTTP(pipeWriter{w, http.Header{}}, req)
			_ = w.Close()
		}()
		start := time.Now()
		b := make([]byte, 1)
		for i := 1; i <= 2; i++ {
			if _, err := io.ReadFull(r, b); err != nil || b[0] != '\n' || time.Since(start) != time.Duration(i)*store.Heartbeat {
				t.Fatalf("%q after %s, %v", b, time.Since(start), err)
			}
		}
		close(done)
		if n, err := r.Read(b); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("%d, %v", n, err)
		}
	})
}
