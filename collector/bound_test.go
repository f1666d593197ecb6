package collector_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/collector"
)

// TestLyingServer: an API server whose answers and events never end is an
// error that names the cluster and the bound.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	filler := []byte(strings.Repeat("x", 1<<16))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		begin := `{"items":[{"metadata":{"name":"`
		if r.URL.Query().Get("watch") != "" {
			begin = `{"type":"ADDED","object":{"metadata":{"name":"`
		}
		_, err := w.Write([]byte(begin))
		for err == nil && r.Context().Err() == nil {
			_, err = w.Write(filler)
		}
	}))
	t.Cleanup(server.Close)
	cfg := collector.Config{Cluster: "liar", REST: &rest.Config{Host: server.URL}, ExternalURL: "http://127.0.0.1:1"}
	c, err := collector.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the bound is named", func() bool {
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		return strings.Contains(w.Body.String(), "cluster liar answers /version with more than 64 MiB")
	})
}
