package eventsink_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// fakeAPI is the events API of an API server, held to its contract: resource
// versions, pages from one snapshot, history that is compacted, bookmarks on
// demand. It is a RoundTripper, so that it works inside a synctest bubble.
type fakeAPI struct {
	mu        sync.Mutex // guards below
	version   int
	live      map[string]json.RawMessage // by name
	history   []change
	compacted int                         // versions up to this are gone
	dropped   int                         // the last change that is gone
	snapshots map[int][][]json.RawMessage // pages by version
	streams   map[*stream]bool
	requests  []string
	// fault may answer instead, or change the answer; nil does neither.
	fault func(req *http.Request) *reply
}

// reply is an answer in place of the right one.
type reply struct {
	code int
	body string
}

type change struct {
	version int
	line    []byte
}

type stream struct {
	w *io.PipeWriter
	// news is closed and replaced when history grows or the stream is cut.
	news chan struct{}
	cut  bool
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{version: 10, live: map[string]json.RawMessage{}, snapshots: map[int][][]json.RawMessage{}, streams: map[*stream]bool{}}
}

func (f *fakeAPI) config() *rest.Config { return &rest.Config{Host: "http://api.test", Transport: f} }

// put creates or updates an Event; object is without resourceVersion.
func (f *fakeAPI) put(name, object string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	raw := json.RawMessage(strings.Replace(object, `"metadata":{`, fmt.Sprintf(`"metadata":{"name":%q,"resourceVersion":"%d",`, name, f.version), 1))
	kind := "ADDED"
	if f.live[name] != nil {
		kind = "MODIFIED"
	}
	f.live[name] = raw
	f.log(kind, raw)
}

func (f *fakeAPI) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	delete(f.live, name)
	f.log("DELETED", json.RawMessage(fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d"}}`, name, f.version)))
}

func (f *fakeAPI) log(kind string, raw json.RawMessage) {
	line := fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, raw)
	f.history = append(f.history, change{f.version, line})
	for s := range f.streams {
		close(s.news)
		s.news = make(chan struct{})
	}
}

// compact forgets the history and the snapshots.
func (f *fakeAPI) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.history) > 0 {
		f.dropped = f.history[len(f.history)-1].version
	}
	f.version++
	f.compacted = f.version
	f.history = nil
	clear(f.snapshots)
}

// inject writes text into every open watch, then cuts it if asked to.
func (f *fakeAPI) inject(text string, cut bool) {
	f.mu.Lock()
	f.version++
	f.log("DELETED", json.RawMessage(`{"metadata":{}}`)) // wakes the streams
	f.history[len(f.history)-1].line = []byte(text)
	if cut {
		f.history = f.history[:len(f.history)-1]
	}
	streams := slices.Collect(maps.Keys(f.streams))
	for _, s := range streams {
		s.cut = cut
	}
	f.mu.Unlock()
	if cut {
		for _, s := range streams {
			_, _ = s.w.Write([]byte(text))
			_ = s.w.CloseWithError(io.ErrUnexpectedEOF)
		}
	}
}

func (f *fakeAPI) count(part string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

func (f *fakeAPI) setFault(fault func(*http.Request) *reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := req.URL.Query()
	f.requests = append(f.requests, req.URL.RequestURI())
	if f.fault != nil {
		if r := f.fault(req); r != nil {
			return answer(r.code, r.body), nil
		}
	}
	if req.URL.Path != "/api/v1/events" {
		return answer(http.StatusNotFound, status(404, "NotFound", "")), nil
	}
	if q.Get("watch") == "true" {
		return f.watch(req), nil
	}
	return f.list(q.Get("continue"), q.Get("limit")), nil
}

func (f *fakeAPI) list(token, limit string) *http.Response {
	n, err := strconv.Atoi(limit)
	if err != nil {
		return answer(http.StatusBadRequest, status(400, "BadRequest", ""))
	}
	version, page := f.version, 0
	if token == "" {
		var all []json.RawMessage
		for _, name := range slices.Sorted(maps.Keys(f.live)) {
			all = append(all, f.live[name])
		}
		f.snapshots[version] = slices.Collect(slices.Chunk(all, n))
	} else if _, err := fmt.Sscanf(token, "%d.%d", &version, &page); err != nil {
		return answer(http.StatusBadRequest, status(400, "BadRequest", ""))
	}
	pages, ok := f.snapshots[version]
	if !ok {
		resume := fmt.Sprintf("%d.%d", f.version, page)
		var all []json.RawMessage
		for _, name := range slices.Sorted(maps.Keys(f.live)) {
			all = append(all, f.live[name])
		}
		f.snapshots[f.version] = slices.Collect(slices.Chunk(all, n))
		return answer(http.StatusGone, status(410, "Expired", resume))
	}
	next := ""
	if page+1 < len(pages) {
		next = fmt.Sprintf("%d.%d", version, page+1)
	}
	items := []json.RawMessage{}
	if page < len(pages) {
		items = pages[page]
	}
	body, err := json.Marshal(map[string]any{
		"kind": "EventList", "apiVersion": "v1", "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version), "continue": next},
	})
	if err != nil {
		panic(err)
	}
	return answer(http.StatusOK, string(body))
}

func (f *fakeAPI) watch(req *http.Request) *http.Response {
	from, err := strconv.Atoi(req.URL.Query().Get("resourceVersion"))
	if err != nil || req.URL.Query().Get("allowWatchBookmarks") != "true" {
		return answer(http.StatusBadRequest, status(400, "BadRequest", ""))
	}
	if from < f.compacted {
		return answer(http.StatusGone, status(410, "Expired", ""))
	}
	r, w := io.Pipe()
	s := &stream{w: w, news: make(chan struct{})}
	f.streams[s] = true
	go func() {
		defer func() {
			f.mu.Lock()
			delete(f.streams, s)
			f.mu.Unlock()
			_ = w.Close()
		}()
		for {
			f.mu.Lock()
			var out []byte
			for _, c := range f.history {
				if c.version > from {
					out, from = append(out, c.line...), c.version
				}
			}
			news, cut := s.news, s.cut
			if from < f.dropped { // it was too slow
				out, cut = fmt.Appendf(nil, "{\"type\":\"ERROR\",\"object\":%s}\n", status(410, "Expired", "")), true
			}
			f.mu.Unlock()
			if _, err := w.Write(out); err != nil || cut {
				return
			}
			select {
			case <-news:
			case <-req.Context().Done():
				_ = w.CloseWithError(req.Context().Err())
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: r, Request: req}
}

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
}

func status(code int, reason, resume string) string {
	return fmt.Sprintf(`{"kind":"Status","metadata":{"continue":%q},"status":"Failure","message":"it is %s","reason":%q,"code":%d}`, resume, reason, reason, code)
}
