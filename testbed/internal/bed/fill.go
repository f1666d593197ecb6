package bed

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

const registerInParallel = 8

// createNodes registers the nodes, sets right what an earlier run with other
// options left different, and removes nodes that are no longer wanted.
func (c *cluster) createNodes(ctx context.Context) error {
	have, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	old := map[string]*corev1.Node{}
	for i := range have.Items {
		old[have.Items[i].Name] = &have.Items[i]
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(registerInParallel)
	for _, n := range c.Nodes() {
		was := old[n.Name]
		delete(old, n.Name)
		group.Go(func() error {
			if err := c.register(ctx, n, was); err != nil {
				return fmt.Errorf("register node %s: %w", n.Name, err)
			}
			return nil
		})
	}
	for name := range old {
		group.Go(func() error {
			err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

func (c *cluster) register(ctx context.Context, n layout.Node, was *corev1.Node) error {
	want := content.Node(c.Cluster, n)
	if was == nil {
		_, err := c.client.CoreV1().Nodes().Create(ctx, want, metav1.CreateOptions{})
		return err
	}
	if was.Status.DaemonEndpoints == want.Status.DaemonEndpoints {
		return nil
	}
	next := was.DeepCopy()
	next.Status.Addresses, next.Status.DaemonEndpoints = want.Status.Addresses, want.Status.DaemonEndpoints
	_, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}

// fill creates the workloads.
func (c *cluster) fill(ctx context.Context) error {
	files := append([]string{"20-processes", "40-demo"}, c.optional()...)
	if c.Options().Broken {
		files = append(files, "60-broken")
	} else if err := c.client.CoreV1().Namespaces().Delete(ctx, "demo-broken", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete namespace demo-broken: %w", err)
	}
	for i := c.Options().APIServers; i < layout.MaxAPIServers; i++ { // those of an earlier run
		err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Delete(ctx, content.APIServerSlice(i), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete endpoints of API server %d: %w", i, err)
		}
	}
	objects, err := content.Manifests(c.Cluster, files...)
	if err != nil {
		return err
	}
	return content.Apply(ctx, c.dynamic, objects)
}

// optional are the manifests of programs that a testbed can do without.
func (c *cluster) optional() []string {
	var out []string
	if c.bed.config.Binaries.CoreDNS != "" {
		out = append(out, "30-coredns")
	}
	if c.bed.config.Binaries.NodeExporter != "" {
		out = append(out, "31-node-exporter")
	}
	return out
}

// optionalPods is how many pods of real processes those manifests make.
func (c *cluster) optionalPods() int {
	pods := 0
	if c.bed.config.Binaries.CoreDNS != "" {
		pods += layout.DNSReplicas
	}
	if c.bed.config.Binaries.NodeExporter != "" {
		pods++
	}
	return pods
}

// waitReady waits for the nodes, nearly all pods, and every process.
func (c *cluster) waitReady(ctx context.Context) error {
	return poll(ctx, 300*time.Millisecond, func() error {
		for _, one := range c.snapshot() {
			if one.State().Phase != proc.Ready {
				return notReady(one)
			}
		}
		if err := c.nodesReady(ctx); err != nil {
			return err
		}
		return c.podsRunning(ctx)
	})
}

func (c *cluster) nodesReady(ctx context.Context) error {
	selector := labels.SelectorFromSet(labels.Set{content.LabelHeartbeat: content.HeartbeatOn}).String()
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	ready := 0
	for i := range list.Items {
		for _, condition := range list.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < len(list.Items) {
		return fmt.Errorf("%d of %d nodes are Ready", ready, len(list.Items))
	}
	return nil
}

// podsRunning wants nine of ten pods running or done, those that are broken on
// purpose not counted, and all that stand for real processes.
func (c *cluster) podsRunning(ctx context.Context) error {
	list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	all, fine, processes := 0, 0, 0
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Labels[content.LabelBehaviour] != "" {
			continue
		}
		all++
		if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded {
			fine++
			if pod.Labels[content.LabelProcess] != "" {
				processes++
			}
		}
	}
	want := 2*len(c.Nodes()) + 20 // two DaemonSets, and the shop
	if all < want || 10*fine < 9*all {
		return fmt.Errorf("%d of %d pods run", fine, max(all, want))
	}
	if want := len(content.Mirrors(c.Cluster)) + 2 + c.optionalPods(); processes < want {
		return fmt.Errorf("%d of %d pods of real processes run", processes, want)
	}
	return nil
}
