package collector_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// fakeToken is the credential that must never reach a target that is not
// meant to see it.
const fakeToken = "fake-cluster-admin-token"

// fakeAPI is a small API server: authenticated lists and watches (streaming
// lists too) of whatever objects it is given, over TLS. It can go away and
// come back on the same port.
type fakeAPI struct {
	t       testing.TB
	address string

	mu       sync.Mutex
	server   *httptest.Server
	pem      []byte // its certificate
	version  int
	objects  map[string]map[string]runtime.Object // resource -> namespace/name -> object
	watchers map[chan fakeEvent]string            // -> resource
}

type fakeEvent struct {
	Type   string         `json:"type"`
	Object runtime.Object `json:"object"`
}

func newFakeAPI(t testing.TB, objects ...runtime.Object) *fakeAPI {
	t.Helper()
	f := &fakeAPI{t: t, address: "127.0.0.1:0", version: 1, objects: map[string]map[string]runtime.Object{}, watchers: map[chan fakeEvent]string{}}
	for _, o := range objects {
		f.set(o)
	}
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *fakeAPI) start() {
	f.t.Helper()
	listener := listen(f.t, f.address)
	f.address = listener.Addr().String()
	server := httptest.NewUnstartedServer(f)
	server.Listener.Close()
	server.Listener = listener
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	f.mu.Lock()
	f.server = server
	f.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f.mu.Unlock()
}

// stop cuts every connection, as a killed API server does.
func (f *fakeAPI) stop() {
	f.mu.Lock()
	server := f.server
	f.server = nil
	for w := range f.watchers {
		close(w)
		delete(f.watchers, w)
	}
	f.mu.Unlock()
	if server != nil {
		server.CloseClientConnections()
		server.Close()
	}
}

func (f *fakeAPI) ca() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pem
}

func (f *fakeAPI) config() *rest.Config {
	return &rest.Config{
		Host: "https://" + f.address, BearerToken: fakeToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.ca()},
	}
}

// set creates or replaces an object.
func (f *fakeAPI) set(o runtime.Object) { f.change(o, "ADDED") }

// remove deletes an object.
func (f *fakeAPI) remove(o runtime.Object) { f.change(o, "DELETED") }

func (f *fakeAPI) change(o runtime.Object, event string) {
	f.t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		f.t.Fatal(err)
	}
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	accessor, err := meta.Accessor(o)
	if err != nil {
		f.t.Fatal(err)
	}
	plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
	key := accessor.GetNamespace() + "/" + accessor.GetName()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	accessor.SetResourceVersion(fmt.Sprint(f.version))
	all := f.objects[plural.Resource]
	if all == nil {
		all = map[string]runtime.Object{}
		f.objects[plural.Resource] = all
	}
	if _, known := all[key]; known && event == "ADDED" {
		event = "MODIFIED"
	}
	if event == "DELETED" {
		delete(all, key)
	} else {
		all[key] = o
	}
	for w, resource := range f.watchers {
		if resource == plural.Resource {
			w <- fakeEvent{event, o}
		}
	}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+fakeToken {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/version" {
		fmt.Fprint(w, `{"gitVersion":"v1.37.2"}`)
		return
	}
	resource := path.Base(r.URL.Path)
	if r.URL.Query().Get("watch") != "" {
		f.watch(w, r, resource)
		return
	}
	f.mu.Lock()
	items := make([]runtime.Object, 0, len(f.objects[resource]))
	for _, o := range f.objects[resource] {
		items = append(items, o)
	}
	body, err := json.Marshal(map[string]any{
		"kind": kindOf(resource) + "List", "apiVersion": apiVersion(r.URL.Path),
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(f.version)}, "items": items,
	})
	f.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body)
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan fakeEvent, 1000)
	encoder := json.NewEncoder(w)
	f.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range f.objects[resource] {
			_ = encoder.Encode(fakeEvent{"ADDED", o})
		}
		_ = encoder.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"kind": kindOf(resource), "apiVersion": apiVersion(r.URL.Path),
			"metadata": map[string]any{
				"resourceVersion": fmt.Sprint(f.version),
				"annotations":     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			},
		}})
	}
	f.watchers[events] = resource
	f.mu.Unlock()
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, events)
		f.mu.Unlock()
	}()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			_ = encoder.Encode(e)
			_ = flush.Flush()
		}
	}
}

func kindOf(resource string) string {
	return map[string]string{
		"pods": "Pod", "nodes": "Node", "services": "Service", "endpointslices": "EndpointSlice",
		"endpoints": "Endpoints", "namespaces": "Namespace", "replicasets": "ReplicaSet", "jobs": "Job", "ingresses": "Ingress",
	}[resource]
}

// apiVersion reads "v1" or "group/version" from a request path.
func apiVersion(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		return parts[1]
	}
	return parts[1] + "/" + parts[2]
}

// watches counts the open watches by resource.
func (f *fakeAPI) watches() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := map[string]int{}
	for _, resource := range f.watchers {
		open[resource]++
	}
	return open
}
