package collector

import (
	"net/http"
	"strconv"
	"strings"
)

// Handler serves the target list, the scrape gateway, its errors, /healthz and /readyz.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /clusters/"+c.cluster+"/targets", c.serveList)
	mux.Handle("GET /clusters/"+c.cluster+"/targets/{id}/metrics", c.gateway)
	mux.HandleFunc("GET /clusters/"+c.cluster+"/errors", c.serveErrors)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", c.serveReady)
	return mux
}

// serveList answers with the list as it was published; an unchanged one costs
// no body.
func (c *Collector) serveList(w http.ResponseWriter, r *http.Request) {
	s := c.published.Load()
	w.Header().Set("ETag", s.etag)
	w.Header().Set("Cache-Control", "no-cache")
	if etagMatches(r.Header.Get("If-None-Match"), s.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(s.body)))
	_, _ = w.Write(s.body) // the sharder went away: it will ask again
}

func etagMatches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == etag {
			return true
		}
	}
	return false
}

// serveReady is 200 once the list is complete. An API server that goes away
// later does not make the collector unready: it still serves.
func (c *Collector) serveReady(w http.ResponseWriter, _ *http.Request) {
	s := c.published.Load()
	switch {
	case s.synced && s.problem == "":
		_, _ = w.Write([]byte("ok\n"))
	case s.synced:
		_, _ = w.Write([]byte("ok, but discovery is stale " + s.problem + "\n"))
	default:
		http.Error(w, strings.TrimSpace("discovery has not delivered yet "+s.problem), http.StatusServiceUnavailable)
	}
}
