// Package bed runs a testbed: it starts the processes of every cluster in
// order, fills the clusters, keeps the processes running, shows them as pods,
// and stops everything in reverse order.
package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/control"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

// Config of a testbed.
type Config struct {
	Options  layout.Options
	Binaries Binaries
	Out      io.Writer // progress lines
}

// Binaries are the programs that a testbed runs.
type Binaries struct {
	Self             string // this program: control plane, kubelets, application
	Etcd             string // "" means Self
	APIServer        string // "" means Self
	KWOK             string
	KubeStateMetrics string
	CoreDNS          string // "" leaves it out
	NodeExporter     string // "" leaves it out
}

// FindBinaries looks for KWOK and kube-state-metrics in dir, for CoreDNS and
// node-exporter, which a testbed can do without, and for etcd and
// kube-apiserver in assets if that is set.
func FindBinaries(self, dir, assets string) (Binaries, error) {
	b := Binaries{Self: self, KWOK: filepath.Join(dir, "kwok"), KubeStateMetrics: filepath.Join(dir, "kube-state-metrics")}
	for _, path := range []string{b.KWOK, b.KubeStateMetrics} {
		if _, err := os.Stat(path); err != nil {
			return Binaries{}, fmt.Errorf("program %s is missing; build it with: make bin/%s, or say where it is with --bin-dir", path, filepath.Base(path))
		}
	}
	for name, to := range map[string]*string{"coredns": &b.CoreDNS, "node-exporter": &b.NodeExporter} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			*to = filepath.Join(dir, name)
		}
	}
	if assets != "" {
		for name, to := range map[string]*string{"etcd": &b.Etcd, "kube-apiserver": &b.APIServer} {
			if _, err := os.Stat(filepath.Join(assets, name)); err == nil {
				*to = filepath.Join(assets, name)
			}
		}
	}
	return b, nil
}

// bed is a testbed that runs.
type bed struct {
	config  Config
	spawner *proc.Spawner
	started time.Time

	mu       sync.Mutex // guards what follows, and the status file
	clusters []*cluster
	ready    bool
}

// Run runs a testbed until ctx ends. It returns nil when it was ready before.
func Run(ctx context.Context, c Config) error {
	if err := c.Options.Validate(); err != nil {
		return err
	}
	release, err := state.Lock(c.Options.Dir)
	if err != nil {
		return err
	}
	defer release()
	if err := checkData(c.Options); err != nil {
		return err
	}
	if err := checkPorts(ctx, c.Options); err != nil {
		return err
	}
	for name, path := range map[string]string{"coredns": c.Binaries.CoreDNS, "node-exporter": c.Binaries.NodeExporter} {
		if path == "" {
			fmt.Fprintf(c.Out, "%s is not there and is left out; build it with: make bin/%s\n", name, name)
		}
	}
	b := &bed{config: c, spawner: proc.NewSpawner(), started: time.Now()}
	for _, l := range c.Options.ClusterList() {
		b.clusters = append(b.clusters, newCluster(b, l))
	}
	err = b.run(ctx)
	b.say("", "stopping")
	b.stop()
	b.writeStatus()
	return err
}

// checkData reports what an earlier run in the same directory fixed: an etcd
// cluster cannot be told on its start that it has other members.
func checkData(o layout.Options) error {
	old, err := state.Last(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	was := old.Options
	if was.EtcdMembers != o.EtcdMembers {
		return fmt.Errorf("%s holds clusters of %d etcd members, not %d; give --etcd-members %d or another --dir", o.Dir, was.EtcdMembers, o.EtcdMembers, was.EtcdMembers)
	}
	if o.EtcdMembers > 1 && was.PortBase != o.PortBase {
		return fmt.Errorf("%s holds clusters whose etcd members meet at ports from %d, not %d; give --port-base %d or another --dir", o.Dir, was.PortBase, o.PortBase, was.PortBase)
	}
	return nil
}

func (b *bed) run(ctx context.Context) error {
	for _, c := range b.clusters {
		if err := control.WriteMaterial(c.Cluster, time.Now()); err != nil {
			return fmt.Errorf("write certificates of cluster %s: %w", c.Name, err)
		}
	}
	if err := control.WriteKubeconfig(b.config.Options, time.Now()); err != nil {
		return fmt.Errorf("write %s: %w", b.config.Options.Kubeconfig(), err)
	}
	b.writeStatus()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	group, groupCtx := errgroup.WithContext(starting)
	for _, c := range b.clusters {
		group.Go(func() error {
			if err := c.bringUp(groupCtx); err != nil {
				return fmt.Errorf("start cluster %s: %w", c.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it started
		}
		return err
	}
	b.mu.Lock()
	b.ready = true
	b.mu.Unlock()
	b.writeStatus()
	b.say("", "ready after %.1f s", time.Since(b.started).Seconds())
	fmt.Fprintf(b.config.Out, "kubeconfig: %s\n", b.config.Options.Kubeconfig())
	<-ctx.Done()
	return nil
}

const startTimeout = 5 * time.Minute

func (b *bed) stop() {
	var clusters sync.WaitGroup
	for _, c := range b.clusters {
		clusters.Go(c.stop)
	}
	clusters.Wait()
}

// say prints a progress line: seconds since the start, cluster, text.
func (b *bed) say(cluster, format string, args ...any) {
	where := "testbed"
	if cluster != "" {
		where = "cluster " + cluster
	}
	fmt.Fprintf(b.config.Out, "%6.1fs %s: %s\n", time.Since(b.started).Seconds(), where, fmt.Sprintf(format, args...))
}

// writeStatus writes the status file; a failure is told, not fatal.
func (b *bed) writeStatus() {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := state.Status{
		PID: os.Getpid(), Started: b.started, Ready: b.ready,
		Kubeconfig: b.config.Options.Kubeconfig(), Options: b.config.Options,
	}
	for _, c := range b.clusters {
		s.Clusters = append(s.Clusters, c.status())
	}
	if err := state.Write(s); err != nil {
		b.say("", "write status: %v", err)
	}
}
