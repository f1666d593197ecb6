package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// servers keeps one HTTPS server on the address of every node.
type servers struct {
	config  Config
	gate    *gate
	metrics *kwokMetrics
	pods    listers.PodLister
	nodes   listers.NodeLister
	log     *slog.Logger
	running map[string]*server // by node; owned by run
}

type server struct {
	address string
	http    *http.Server
}

func (s *servers) run(ctx context.Context, synced cache.InformerSynced) error {
	s.running = map[string]*server{}
	health := &http.Server{Addr: s.config.Health, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !synced() {
			http.Error(w, "nodes are not known yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})}
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := health.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	defer func() {
		_ = health.Close()
		for _, one := range s.running {
			_ = one.http.Close()
		}
		serving.Wait()
	}()
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
			if synced() {
				if err := s.reconcile(ctx, &serving); err != nil {
					return err
				}
			}
		}
	}
}

// reconcile starts a server for each node that lacks one and stops those of
// nodes that are gone. A port that is taken is an error: nothing else may
// answer for a node.
func (s *servers) reconcile(ctx context.Context, serving *sync.WaitGroup) error {
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, node := range nodes {
		address := net.JoinHostPort(internalIP(node), fmt.Sprint(s.config.Port))
		present[node.Name] = true
		if old, ok := s.running[node.Name]; ok && old.address == address {
			continue
		} else if ok {
			_ = old.http.Close()
			delete(s.running, node.Name)
		}
		one, err := s.start(ctx, node.Name, address, serving)
		if err != nil {
			return fmt.Errorf("serve node %s on %s: %w", node.Name, address, err)
		}
		s.running[node.Name] = one
	}
	for name, one := range s.running {
		if !present[name] {
			_ = one.http.Close()
			delete(s.running, name)
		}
	}
	return nil
}

func (s *servers) start(ctx context.Context, node, address string, serving *sync.WaitGroup) (*server, error) {
	file := filepath.Join(s.config.CertDir, node)
	cert, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	one := &server{address: address, http: &http.Server{
		Handler: s.gate.guard(node, s.handler(node)), TLSConfig: s.gate.tlsConfig(cert),
		ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}}
	serving.Go(func() { _ = one.http.ServeTLS(listener, "", "") })
	return one, nil
}

func (s *servers) handler(node string) http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /healthz/{check}", ok)
	mux.HandleFunc("GET /metrics", s.metrics.handler(node, "metrics", func() []byte { return s.histograms(node) }))
	mux.HandleFunc("GET /metrics/resource", s.metrics.handler(node, "metrics/resource", nil))
	mux.HandleFunc("GET /metrics/cadvisor", s.metrics.handler(node, "metrics/cadvisor", nil))
	mux.HandleFunc("GET /metrics/probes", func(w http.ResponseWriter, r *http.Request) { writePage(w, r, s.probes(node)) })
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) { s.servePods(w, node) })
	return mux
}

func internalIP(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
