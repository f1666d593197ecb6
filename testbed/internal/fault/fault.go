// Package fault breaks a running testbed in named ways and mends it again.
//
// A fault is a change in the cluster (an object or a label) or a hold file that
// the running testbed obeys; nothing else remembers it, so faults can be
// injected and cleared from any shell, twice without harm, and are still known
// after a restart of the testbed. Hold files alone end with the testbed.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

// Target is where to inject a fault.
type Target struct {
	Cluster layout.Cluster
	Client  kubernetes.Interface
	Node    string // "" lets the fault choose
	Name    string // "" lets the fault choose
}

// Fault is one way to break a cluster. Each function says in a line what it did
// or found; Active returns "" when the fault is not in effect.
type Fault struct {
	Name    string
	Summary string
	Expect  string
	Inject  func(context.Context, Target) (string, error)
	Clear   func(context.Context, Target) (string, error)
	Active  func(context.Context, Target) (string, error)
}

// All lists every fault in the order in which the help shows them.
func All() []Fault {
	return []Fault{
		{
			Name: "node-heartbeat", Summary: "a node's kubelet no longer renews its lease (--node)",
			Expect: "the node lifecycle controller calls the node NotReady within about 20 s and taints it; /metrics of the node still answers",
			Inject: stopHeartbeat, Clear: resumeHeartbeat, Active: silentNodes,
		},
		{
			Name: "scheduler-down", Summary: "kube-scheduler is killed and stays down",
			Expect: "its pod turns not Ready within 2 s, its target goes down, new pods stay Pending",
			Inject: hold(schedulers), Clear: release(schedulers), Active: heldNow(schedulers),
		},
		{
			Name: "apiserver-down", Summary: "every kube-apiserver of the cluster is killed and stays down",
			Expect: "the cluster does not answer; the controller manager loses its leadership and ends, and comes back after the API server",
			Inject: hold(apiservers), Clear: release(apiservers), Active: heldNow(apiservers),
		},
		{
			Name: "crash-loop", Summary: "a pod whose container ends after a second, again and again (--name)",
			Expect: "state CrashLoopBackOff, restartCount grows, and an Event BackOff at once and every 10 s, counted up in one object",
			Inject: startCrashLoop, Clear: endCrashLoop, Active: crashLoops,
		},
		{
			Name: "service-no-endpoints", Summary: "a Service whose selector matches no pod (--name)",
			Expect: "its EndpointSlice holds no endpoint",
			Inject: makeOrphan, Clear: removeOrphan, Active: orphans,
		},
	}
}

// Find returns the fault of that name.
func Find(name string) (Fault, error) {
	var names []string
	for _, f := range All() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Fault{}, fmt.Errorf("no fault is named %q: choose from %s", name, strings.Join(names, ", "))
}

func schedulers(layout.Cluster) []string { return []string{"kube-scheduler"} }

func apiservers(c layout.Cluster) []string {
	out := make([]string, c.Options().APIServers)
	for i := range out {
		out[i] = fmt.Sprintf("kube-apiserver-%d", i)
	}
	return out
}

// obeyed is how long the testbed may take to act on a hold file.
const obeyed = 15 * time.Second

func hold(processes func(layout.Cluster) []string) func(context.Context, Target) (string, error) {
	return func(ctx context.Context, t Target) (string, error) {
		names := processes(t.Cluster)
		for _, n := range names {
			if err := os.WriteFile(t.Cluster.HoldFile(n), nil, 0o644); err != nil {
				return "", err
			}
		}
		if err := await(ctx, t.Cluster, names, func(p proc.Phase) bool { return p == proc.Held }); err != nil {
			return "", err
		}
		return strings.Join(names, ", ") + " killed and held down", nil
	}
}

func release(processes func(layout.Cluster) []string) func(context.Context, Target) (string, error) {
	return func(ctx context.Context, t Target) (string, error) {
		names := processes(t.Cluster)
		for _, n := range names {
			if err := os.Remove(t.Cluster.HoldFile(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		if err := await(ctx, t.Cluster, names, func(p proc.Phase) bool { return p != proc.Held }); err != nil {
			return "", err
		}
		return strings.Join(names, ", ") + " may run again", nil
	}
}

func heldNow(processes func(layout.Cluster) []string) func(context.Context, Target) (string, error) {
	return func(_ context.Context, t Target) (string, error) {
		var down []string
		for _, n := range processes(t.Cluster) {
			if _, err := os.Stat(t.Cluster.HoldFile(n)); err == nil {
				down = append(down, n)
			}
		}
		return strings.Join(down, ", "), nil
	}
}

// await waits until the testbed's status shows the processes as wanted.
func await(ctx context.Context, c layout.Cluster, names []string, want func(proc.Phase) bool) error {
	ctx, cancel := context.WithTimeout(ctx, obeyed)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := state.Read(c.Options().Dir)
		if err != nil {
			return err
		}
		if agreed(s, c.Name, names, want) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the testbed with pid %d has not acted on it within %s; see its output", s.PID, obeyed)
		}
	}
}

func agreed(s state.Status, cluster string, names []string, want func(proc.Phase) bool) bool {
	phases := map[string]proc.Phase{}
	for _, c := range s.Clusters {
		if c.Name == cluster {
			for _, p := range c.Processes {
				phases[p.Name] = p.Phase
			}
		}
	}
	for _, n := range names {
		if phase, ok := phases[n]; !ok || !want(phase) {
			return false
		}
	}
	return true
}
