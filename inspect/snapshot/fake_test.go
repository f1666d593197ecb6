package snapshot_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// fakeAPI answers as a small, healthy API server does; override replaces the
// answer of a path.
type fakeAPI struct {
	override map[string]http.HandlerFunc
}

const metricsText = `# HELP apiserver_storage_size_bytes size
# TYPE apiserver_storage_size_bytes gauge
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 4096
apiserver_request_total{code="200",verb="GET",resource="pods"} 7
apiserver_request_total{code="200",verb="LIST",resource="pods"} 5
apiserver_request_total{code="500",verb="LIST",resource="pods"} 1
apiserver_resource_objects{group="",resource="pods"} 3
etcd_request_duration_seconds_bucket{operation="get",type="a",le="0.1"} 3
etcd_request_duration_seconds_bucket{operation="list",type="b",le="0.1"} 4
undeclared_metric{with="labels"} 1
process_start_time_seconds 1.7e+09
`

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler := f.override[r.URL.Path]; handler != nil {
		handler(w, r)
		return
	}
	switch path := r.URL.Path; path {
	case "/version":
		answerJSON(w, `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`)
	case "/readyz", "/livez":
		fmt.Fprintf(w, "[+]ping ok\n[+]etcd ok\n%s check passed\n", strings.Trim(path, "/"))
	case "/metrics":
		fmt.Fprint(w, metricsText)
	case "/apis/apiregistration.k8s.io/v1/apiservices":
		answerJSON(w, `{"kind":"APIServiceList","items":[{"metadata":{"name":"v1.apps"},"status":{"conditions":[{"type":"Available","status":"True"}]}}]}`)
	default:
		if strings.HasPrefix(path, "/api/v1/") || strings.HasPrefix(path, "/apis/") {
			answerList(w, "")
			return
		}
		http.NotFound(w, r)
	}
}

func answerJSON(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, text)
}

// answerList answers a list of any kind: the client knows which it asked for.
func answerList(w http.ResponseWriter, next string, items ...any) {
	if items == nil {
		items = []any{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": "7", "continue": next}, "items": items})
}

func named(namespace, name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}}
}

func status(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"it is %s","code":%d}`, reason, reason, code)
	}
}

// serve starts the fake with TLS and returns the way to it.
func serve(t *testing.T, override map[string]http.HandlerFunc) (*httptest.Server, *rest.Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(&fakeAPI{override})
	server.Config.ErrorLog = discardLog()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, &rest.Config{Host: server.URL, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: caOf(server)}}
}

func quick() snapshot.Options {
	return snapshot.Options{Timeout: 20 * time.Second, RequestTimeout: 10 * time.Second, MetricsWindow: -1}
}

func collect(t *testing.T, config *rest.Config, options snapshot.Options) *snapshot.Snapshot {
	t.Helper()
	return snapshot.Collect(t.Context(), snapshot.Source{Name: "a", Config: config}, options)
}
