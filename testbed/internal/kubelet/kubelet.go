// Package kubelet stands in for the kubelets of a cluster's simulated nodes,
// in one process: it serves each node's own address with that node's
// certificate, asks the API server who a caller is and what it may do as a
// kubelet does, and answers with the node's metrics, which KWOK computes.
//
// It also plays the kubelet's part in what KWOK does not simulate: the events
// of containers, pods that crash again and again, and pods that are Ready again
// when their node is.
package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// Config of the process.
type Config struct {
	Client   *rest.Config
	ClientCA string // file that verifies client certificates
	CertDir  string // holds <node>.crt and <node>.key
	KWOK     string // URL of KWOK's server
	Port     int    // the kubelet port on every node's address
	Health   string // address of the process's own health page
	Logger   *slog.Logger
}

// clientQPS bounds what the process asks of its API server: reviews of
// callers, statuses of pods, and events.
const (
	clientQPS   = 50
	clientBurst = 100
	// Every occurrence of an event shall be seen, so the recorder's own limit
	// of one event per object and five minutes is lifted.
	eventQPS   = 5
	eventBurst = 500
)

// Run works until ctx ends.
func Run(ctx context.Context, c Config) error {
	config := rest.CopyConfig(c.Client)
	config.QPS, config.Burst = clientQPS, clientBurst
	config.UserAgent = "testbed-kubelet"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of the kubelets: %w", err)
	}
	gate, err := newGate(client, c.ClientCA)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	pods := factory.Core().V1().Pods()

	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		QPS: eventQPS, BurstSize: eventBurst,
	}))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorders := func(node string) record.EventRecorder {
		return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: node})
	}

	events := &podEvents{recorder: recorders}
	if _, err := pods.Informer().AddEventHandler(events.handler()); err != nil {
		return err
	}
	crash := &crashLoops{client: client, pods: pods.Lister(), nodes: nodes.Lister(), recorder: recorders, log: c.Logger}
	ready := &readiness{client: client, pods: pods.Lister(), nodes: nodes.Lister(), log: c.Logger}
	servers := &servers{config: c, gate: gate, metrics: newKWOKMetrics(c.KWOK), pods: pods.Lister(), nodes: nodes.Lister(), log: c.Logger}

	factory.Start(ctx.Done())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return servers.run(ctx, nodes.Informer().HasSynced) })
	group.Go(func() error { return crash.run(ctx, pods.Informer().HasSynced) })
	group.Go(func() error { return ready.run(ctx, pods.Informer().HasSynced, nodes.Informer().HasSynced) })
	err = group.Wait()
	factory.Shutdown()
	return err
}

// reconcileEvery is how often servers and crash loops compare what is with
// what should be.
const reconcileEvery = 500 * time.Millisecond
