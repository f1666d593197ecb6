package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// kwokMetrics fetches a node's metrics from KWOK.
type kwokMetrics struct {
	base   string
	client *http.Client
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

// handler passes a page of the node through, with the caller's choice of
// format and compression.
func (m *kwokMetrics) handler(node, page string) http.Handler {
	lock := m.lock(node)
	url := m.base + "/metrics/nodes/" + node + "/" + page
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), kwokTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, h := range []string{"Accept", "Accept-Encoding"} {
			if v := r.Header.Get(h); v != "" {
				request.Header.Set(h, v)
			}
		}
		lock.Lock()
		defer lock.Unlock()
		response, err := m.client.Do(request)
		if err != nil {
			http.Error(w, "kwok does not answer: "+err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		for _, h := range []string{"Content-Type", "Content-Encoding"} {
			if v := response.Header.Get(h); v != "" {
				w.Header().Set(h, v)
			}
		}
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
	})
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

// serveProbes writes how often each probe of a node's containers has come to
// which result: once a period since the container started.
func (s *servers) serveProbes(w http.ResponseWriter, node string) {
	var b strings.Builder
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
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = io.WriteString(w, b.String())
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
