package bed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

const mirrorEvery = time.Second

// startMirroring shows the real processes as pods from now on.
func (c *cluster) startMirroring(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.stopBackground = cancel
	c.background.Go(func() {
		tick := time.NewTicker(mirrorEvery)
		defer tick.Stop()
		told := false
		for {
			err := c.mirror(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !told:
				c.say("pods of processes are out of date: %v", err)
			case err == nil && told:
				c.say("pods of processes are up to date again")
			}
			told = err != nil
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// mirror makes the static pods be there, and every pod that stands for a
// process tell how the process is.
func (c *cluster) mirror(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: content.LabelProcess, ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	have := map[string]*corev1.Pod{}
	for i := range list.Items {
		have[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	for _, m := range content.Mirrors(c.Cluster) {
		key := m.Pod.Namespace + "/" + m.Pod.Name
		pod := have[key]
		if pod != nil && pod.Annotations["kubernetes.io/config.hash"] != m.Pod.Annotations["kubernetes.io/config.hash"] {
			zero := int64(0)
			if err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("replace pod %s: %w", pod.Name, err)
			}
			pod = nil
		}
		if pod == nil {
			made, err := c.client.CoreV1().Pods(m.Pod.Namespace).Create(ctx, m.Pod, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				continue // the list came from a cache that lags; next round
			}
			if err != nil {
				return fmt.Errorf("create pod %s: %w", m.Pod.Name, err)
			}
			have[key] = made
		}
	}
	return c.mirrorStatus(ctx, have)
}

func (c *cluster) mirrorStatus(ctx context.Context, pods map[string]*corev1.Pod) error {
	states := map[string]proc.State{}
	for _, one := range c.snapshot() {
		states[one.Spec().Name] = one.State()
	}
	addresses := map[string]string{}
	for _, n := range c.Nodes() {
		addresses[n.Name] = n.IP
	}
	for pod, instance := range content.Assign(c.Cluster, slices.Collect(maps.Values(pods))) {
		host, placed := addresses[pod.Spec.NodeName]
		if !placed {
			continue
		}
		s := states[instance.Process] // none: a program that is left out this time
		status := content.ProcessStatus(pod, host, instance.Address, s)
		if equality.Semantic.DeepEqual(status, pod.Status) {
			continue
		}
		next := pod.DeepCopy()
		next.Status = status
		if _, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil &&
			!apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write status of pod %s: %w", pod.Name, err)
		}
	}
	return nil
}
