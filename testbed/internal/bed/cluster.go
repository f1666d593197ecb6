package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

// cluster is one cluster of a testbed that runs.
type cluster struct {
	layout.Cluster
	bed     *bed
	client  kubernetes.Interface
	dynamic dynamic.Interface

	mu       sync.Mutex // guards what follows
	children []*child   // in the order of their start
	ready    bool

	background     sync.WaitGroup
	stopBackground context.CancelFunc
}

// child is a process and the way to stop it.
type child struct {
	*proc.Child
	endpoint string
	cancel   context.CancelFunc
	done     chan struct{} // closed when the process is gone for good
	reported proc.State    // owned by the child's goroutine
}

func newCluster(b *bed, l layout.Cluster) *cluster {
	return &cluster{Cluster: l, bed: b, stopBackground: func() {}}
}

// bringUp starts the cluster's processes, fills it, and returns when it is ready.
func (c *cluster) bringUp(ctx context.Context) error {
	if err := c.clearHolds(); err != nil {
		return err
	}
	kwokConfig, err := content.KWOKConfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Path("kwok.yaml"), []byte(kwokConfig), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(c.Path("Corefile"), []byte(content.Corefile(c.Cluster)), 0o644); err != nil {
		return err
	}
	p := c.processes()
	for _, stage := range []struct {
		name  string
		specs []process
	}{{"etcd", p.etcd}, {"kube-apiserver", p.apiservers}} {
		if err := c.startAndWait(ctx, stage.specs); err != nil {
			return err
		}
		c.say("%s is ready", stage.name)
	}
	if err := c.connect(); err != nil {
		return err
	}
	objects, err := content.Manifests(c.Cluster, "10-access")
	if err != nil {
		return err
	}
	if err := content.Apply(ctx, c.dynamic, objects); err != nil {
		return err
	}
	c.start(p.controllers...)
	if err := c.createNodes(ctx); err != nil {
		return err
	}
	c.start(p.workloads...)
	if err := poll(ctx, 100*time.Millisecond, func() error { return c.nodesReady(ctx) }); err != nil {
		return err
	}
	c.say("%d nodes are Ready", len(c.Nodes()))
	c.startMirroring(ctx)
	if err := c.fill(ctx); err != nil {
		return err
	}
	c.say("workloads are created")
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.ready = true
	c.mu.Unlock()
	c.say("is ready at %s", c.Server(0))
	return nil
}

func (c *cluster) say(format string, args ...any) { c.bed.say(c.Name, format, args...) }

// clearHolds lets go of processes that a fault held down in an earlier run.
func (c *cluster) clearHolds() error {
	entries, err := os.ReadDir(c.Path("holds"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(c.Path("holds"), e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// The testbed's own client: it writes a few hundred objects at the start.
const (
	clientQPS     = 500
	clientBurst   = 1000
	clientTimeout = 20 * time.Second
)

func (c *cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.ClientConfig("admin"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst, config.Timeout, config.UserAgent = clientQPS, clientBurst, clientTimeout, "testbed"
	config.WarningHandler = rest.NoWarnings{} // EndpointSlices of names are deprecated, and the only ones that take loopback
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	if c.client, err = kubernetes.NewForConfig(typed); err != nil {
		return err
	}
	c.dynamic, err = dynamic.NewForConfig(config)
	return err
}

// start runs the processes in the background until stop.
func (c *cluster) start(specs ...process) []*child {
	out := make([]*child, 0, len(specs))
	for _, s := range specs {
		ctx, cancel := context.WithCancel(context.Background())
		one := &child{endpoint: s.endpoint, cancel: cancel, done: make(chan struct{})}
		one.Child = proc.NewChild(c.bed.spawner, s.Spec, func(st proc.State) { c.changed(one, st) })
		c.mu.Lock()
		c.children = append(c.children, one)
		c.mu.Unlock()
		go func() {
			defer close(one.done)
			_ = one.Run(ctx)
		}()
		out = append(out, one)
	}
	return out
}

// startAndWait starts processes together and waits until all are ready.
func (c *cluster) startAndWait(ctx context.Context, specs []process) error {
	children := c.start(specs...)
	return poll(ctx, 50*time.Millisecond, func() error {
		for _, one := range children {
			if s := one.State(); s.Phase != proc.Ready {
				return notReady(one)
			}
		}
		return nil
	})
}

func notReady(one *child) error {
	s := one.State()
	text := fmt.Sprintf("%s is %s", s.Name, s.Phase)
	if s.LastExit != "" {
		text += " (last ended with " + s.LastExit + ")"
	}
	return fmt.Errorf("%s; see %s", text, one.Spec().Log)
}

// changed reports what a person wants to know and keeps the status file fresh.
// It runs in the child's goroutines.
func (c *cluster) changed(one *child, s proc.State) {
	c.mu.Lock()
	before := one.reported
	one.reported = s
	c.mu.Unlock()
	switch {
	case s.Phase == proc.Held && before.Phase != proc.Held:
		c.say("%s is held down by a fault", s.Name)
	case s.Phase == proc.Waiting && before.Phase == proc.Held:
		c.say("%s is let go and starts again", s.Name)
	case s.Phase == proc.Waiting && s.LastExit != "" && before.Phase != proc.Waiting:
		c.say("%s ended by itself: %s; restarting; see %s", s.Name, s.LastExit, one.Spec().Log)
	case s.Phase == proc.Ready && before.Phase == proc.Running && s.Restarts > 0:
		c.say("%s is ready again after %d restarts", s.Name, s.Restarts)
	}
	c.bed.writeStatus()
}

// stop ends the processes, the last started first; those of equal standing
// end one after the other so that none loses its server under its feet.
func (c *cluster) stop() {
	c.stopBackground()
	c.background.Wait()
	c.mu.Lock()
	children := c.children
	c.mu.Unlock()
	for _, one := range slices.Backward(children) {
		one.cancel()
		<-one.done
	}
}

func (c *cluster) snapshot() []*child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*child(nil), c.children...)
}

// status is the cluster's part of the status file.
func (c *cluster) status() state.Cluster {
	s := state.Cluster{Name: c.Name, Server: c.Server(0), Nodes: len(c.Nodes())}
	for _, one := range c.snapshot() {
		s.Processes = append(s.Processes, state.Process{State: one.State(), Endpoint: one.endpoint, Log: one.Spec().Log})
	}
	c.mu.Lock()
	s.Ready = c.ready
	c.mu.Unlock()
	return s
}

// poll calls f until it returns nil; when ctx ends it returns f's last error.
func poll(ctx context.Context, every time.Duration, f func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
