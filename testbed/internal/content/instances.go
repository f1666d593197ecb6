package content

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

// CoreDNS is the process of the cluster's DNS; it has several instances.
const CoreDNS = "coredns"

// Instance is one real process that a pod can stand for.
type Instance struct {
	Process string // name of the child process
	Address string // on which it listens: the pod's
}

// Instances are the processes that pods with this LabelProcess stand for.
func Instances(c layout.Cluster, process string) []Instance {
	if process != CoreDNS {
		return []Instance{{Process: process, Address: "127.0.0.1"}}
	}
	out := make([]Instance, layout.DNSReplicas)
	for i := range out {
		out[i] = Instance{Process: ProcessName(CoreDNS, i), Address: c.DNSAddress(i)}
	}
	return out
}

// Assign says which process each pod stands for. Where there are several
// instances no two pods share one: a pod keeps the one whose address it has,
// the others get what is free, the oldest first, and those beyond the number of
// instances get none and wait. Pods without a node, or about to go, do not count.
func Assign(c layout.Cluster, pods []*corev1.Pod) map[*corev1.Pod]Instance {
	groups := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if process := pod.Labels[LabelProcess]; process != "" && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			groups[process] = append(groups[process], pod)
		}
	}
	out := map[*corev1.Pod]Instance{}
	for process, group := range groups {
		instances := Instances(c, process)
		if len(instances) == 1 {
			for _, pod := range group {
				out[pod] = instances[0]
			}
			continue
		}
		slices.SortFunc(group, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		assignAmong(out, group, instances)
	}
	return out
}

func assignAmong(out map[*corev1.Pod]Instance, group []*corev1.Pod, free []Instance) {
	take := func(pod *corev1.Pod, i int) {
		if i >= 0 && i < len(free) {
			out[pod] = free[i]
			free = slices.Delete(free, i, i+1)
		}
	}
	for _, pod := range group {
		take(pod, slices.IndexFunc(free, func(one Instance) bool { return one.Address == pod.Status.PodIP }))
	}
	for _, pod := range group {
		if _, has := out[pod]; !has {
			take(pod, 0)
		}
	}
}
