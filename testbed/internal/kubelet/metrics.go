package kubelet

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
)

// kwokMetrics fetches a node's metrics from KWOK.
type kwokMetrics struct {
	base   string
	client *http.Client
	warm   atomic.Bool // KWOK has answered before; see get
	mu     sync.Mutex
	locks  map[string]*sync.Mutex // by node
}

const (
	kwokTimeout = 15 * time.Second
	kwokConns   = 16
)

func newKWOKMetrics(base string) *kwokMetrics {
	transport := &http.Transport{MaxIdleConnsPerHost: kwokConns, MaxConnsPerHost: kwokConns, IdleConnTimeout: time.Minute}
	return &kwokMetrics{base: base, client: &http.Client{Transport: transport, Timeout: kwokTimeout}, locks: map[string]*sync.Mutex{}}
}

// lock returns the lock of a node. KWOK keeps one registry for each node and
// refills it for whichever page is asked, so two pages of one node asked at
// once would mix.
func (m *kwokMetrics) lock(node string) *sync.Mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[node] == nil {
		m.locks[node] = &sync.Mutex{}
	}
	return m.locks[node]
}

// get fetches a page of the node in the text format. KWOK begins to load its
// cache of pods when it is first asked, and answers that without pods, so the
// first answer is not used.
func (m *kwokMetrics) get(ctx context.Context, node, page string) ([]byte, error) {
	if !m.warm.Load() {
		if _, err := m.fetch(ctx, node, page); err != nil {
			return nil, err
		}
		m.warm.Store(true)
	}
	body, err := m.fetch(ctx, node, page)
	if err != nil {
		m.warm.Store(false)
	}
	return body, err
}

func (m *kwokMetrics) fetch(ctx context.Context, node, page string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, kwokTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+"/metrics/nodes/"+node+"/"+page, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "*/*") // go-restful refuses a mere text/plain
	lock := m.lock(node)
	lock.Lock()
	defer lock.Unlock()
	response, err := m.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", response.Status, body)
	}
	return body, nil
}

// handler serves a page of the node: KWOK's, with the names set right, and
// what extra adds to it.
func (m *kwokMetrics) handler(node, page string, extra func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := m.get(r.Context(), node, page)
		if err != nil {
			http.Error(w, "fetch metrics of node "+node+" from kwok: "+err.Error(), http.StatusBadGateway)
			return
		}
		body = bytes.ReplaceAll(body, []byte(content.CadvisorPrefix), nil)
		if extra != nil {
			body = append(body, extra()...)
		}
		writePage(w, r, body)
	}
}

const (
	textFormat = "text/plain; version=0.0.4; charset=utf-8"
	maxPage    = 64 << 20
)

// writePage writes metrics in the text format, compressed if the caller likes.
func writePage(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", textFormat)
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = z.Write(body)
	_ = z.Close()
}

// histograms are the families with labels that KWOK cannot express: it writes
// histograms without their labels.
func (s *servers) histograms(node string) []byte {
	object, err := s.nodes.Get(node)
	if err != nil {
		return nil
	}
	age := time.Since(object.CreationTimestamp.Time).Seconds()
	var b bytes.Buffer
	family := func(name, help string, scale float64, operations []content.Operation) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name)
		for _, o := range operations {
			count, sum := uint64(0), 0.0
			for _, bucket := range content.Latencies(scale) {
				n := uint64(age * o.Rate * bucket.Share)
				count += n
				sum += float64(n) * bucket.Le
				fmt.Fprintf(&b, "%s_bucket{operation_type=%q,le=\"%g\"} %d\n", name, o.Name, bucket.Le, count)
			}
			fmt.Fprintf(&b, "%s_bucket{operation_type=%q,le=\"+Inf\"} %d\n%s_sum{operation_type=%q} %g\n%s_count{operation_type=%q} %d\n",
				name, o.Name, count, name, o.Name, sum, name, o.Name, count)
		}
	}
	family("kubelet_runtime_operations_duration_seconds", "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.", 0.5, content.RuntimeOperations())
	family("kubelet_pod_worker_duration_seconds", "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync", 1,
		[]content.Operation{{Name: "create", Rate: 0.01}, {Name: "sync", Rate: 0.4}})
	family("kubelet_cgroup_manager_duration_seconds", "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.", 0.1,
		[]content.Operation{{Name: "update", Rate: 0.8}})
	return b.Bytes()
}

func (s *servers) podsOf(node string) []*corev1.Pod {
	all, err := s.pods.List(labels.Everything())
	if err != nil {
		return nil
	}
	var out []*corev1.Pod
	for _, p := range all {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// probes says how often each probe of a node's containers has come to which
// result: once a period since the container started.
func (s *servers) probes(node string) []byte {
	var b bytes.Buffer
	b.WriteString("# HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.\n# TYPE prober_probe_total counter\n")
	for _, pod := range s.podsOf(node) {
		for i, container := range pod.Spec.Containers {
			if i >= len(pod.Status.ContainerStatuses) || pod.Status.ContainerStatuses[i].State.Running == nil {
				continue
			}
			age := time.Since(pod.Status.ContainerStatuses[i].State.Running.StartedAt.Time)
			for _, probe := range []struct {
				kind string
				is   *corev1.Probe
			}{{"Liveness", container.LivenessProbe}, {"Readiness", container.ReadinessProbe}} {
				if probe.is == nil {
					continue
				}
				period := max(probe.is.PeriodSeconds, 1)
				fmt.Fprintf(&b, "prober_probe_total{container=%q,namespace=%q,pod=%q,pod_uid=%q,probe_type=%q,result=\"successful\"} %d\n",
					container.Name, pod.Namespace, pod.Name, string(pod.UID), probe.kind, int64(age.Seconds())/int64(period))
			}
		}
	}
	return b.Bytes()
}

// servePods writes the pods bound to the node.
func (s *servers) servePods(w http.ResponseWriter, node string) {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range s.podsOf(node) {
		list.Items = append(list.Items, *p)
	}
	data, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}
