package snapshot

import (
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Control plane components, as kubeadm labels their static pods (component=...).
const (
	ComponentAPIServer  = "kube-apiserver"
	ComponentController = "kube-controller-manager"
	ComponentScheduler  = "kube-scheduler"
	ComponentEtcd       = "etcd"
)

var components = []string{ComponentAPIServer, ComponentController, ComponentScheduler, ComponentEtcd}

func keepPod(p *corev1.Pod) Pod {
	pod := Pod{
		Meta: keepMeta(&p.ObjectMeta), Owner: keepOwner(&p.ObjectMeta),
		Node: p.Spec.NodeName, Phase: string(p.Status.Phase), Reason: p.Status.Reason,
		HostNetwork: p.Spec.HostNetwork, Requests: podRequests(&p.Spec),
	}
	if p.DeletionGracePeriodSeconds != nil {
		pod.Grace = *p.DeletionGracePeriodSeconds
	}
	_, pod.Static = p.Annotations[corev1.MirrorPodAnnotationKey]
	for _, c := range p.Status.Conditions {
		kept := condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
		if c.Type == corev1.PodReady {
			pod.Ready = &kept
		}
		if c.Type == corev1.PodScheduled {
			pod.Scheduled = &kept
		}
	}
	for _, volume := range p.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			pod.Claims = append(pod.Claims, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	pod.Containers = slices.Concat(keepContainers(p.Status.InitContainerStatuses, true), keepContainers(p.Status.ContainerStatuses, false))
	pod.Component = keepComponent(p)
	return pod
}

func keepContainers(statuses []corev1.ContainerStatus, init bool) []Container {
	return each(statuses, func(s *corev1.ContainerStatus) Container {
		c := Container{Name: s.Name, Init: init, Restarts: s.RestartCount, Ready: s.Ready}
		if s.State.Waiting != nil {
			c.Waiting = s.State.Waiting.Reason
		}
		if s.State.Running != nil {
			c.Running = utc(&s.State.Running.StartedAt)
		}
		c.Exit, c.LastExit = keepExit(s.State.Terminated), keepExit(s.LastTerminationState.Terminated)
		return c
	})
}

func keepExit(t *corev1.ContainerStateTerminated) *Exit {
	if t == nil {
		return nil
	}
	return &Exit{Code: t.ExitCode, Reason: t.Reason, Started: utcOrZero(t.StartedAt), Finished: utcOrZero(t.FinishedAt)}
}

// podRequests is what the scheduler reserves for a pod: the containers and
// sidecars together, or the largest init step, and the overhead.
func podRequests(spec *corev1.PodSpec) Resources {
	var running, sidecars, initial Resources
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		amount := amounts(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = plus(sidecars, amount)
			continue
		}
		initial = larger(initial, plus(sidecars, amount))
	}
	for i := range spec.Containers {
		running = plus(running, amounts(spec.Containers[i].Resources.Requests))
	}
	total := larger(plus(running, sidecars), initial)
	if spec.Resources != nil {
		if _, ok := spec.Resources.Requests[corev1.ResourceCPU]; ok {
			total.CPUMilli = spec.Resources.Requests.Cpu().MilliValue()
		}
		if _, ok := spec.Resources.Requests[corev1.ResourceMemory]; ok {
			total.Memory = spec.Resources.Requests.Memory().Value()
		}
	}
	total = plus(total, amounts(spec.Overhead))
	total.Pods = 0
	return total
}

func amounts(list corev1.ResourceList) Resources {
	return Resources{CPUMilli: list.Cpu().MilliValue(), Memory: list.Memory().Value(), Pods: list.Pods().Value()}
}

func plus(a, b Resources) Resources {
	return Resources{CPUMilli: a.CPUMilli + b.CPUMilli, Memory: a.Memory + b.Memory}
}

func larger(a, b Resources) Resources {
	return Resources{CPUMilli: max(a.CPUMilli, b.CPUMilli), Memory: max(a.Memory, b.Memory)}
}

// keepComponent finds where a control plane static pod answers health
// questions: its liveness probe, else its container port named probe-port.
func keepComponent(p *corev1.Pod) *Component {
	name := p.Labels["component"]
	if p.Namespace != metav1.NamespaceSystem || !slices.Contains(components, name) || len(p.Spec.Containers) == 0 {
		return nil
	}
	container := &p.Spec.Containers[0]
	kept := &Component{Name: name, PodIP: p.Status.PodIP, Scheme: "http", Path: "/healthz"}
	for _, port := range container.Ports {
		if port.Name == "probe-port" {
			kept.Port = port.ContainerPort
		}
	}
	if name != ComponentEtcd {
		kept.Scheme = "https"
	}
	if probe := container.LivenessProbe; probe != nil && probe.HTTPGet != nil {
		kept.ProbeHost, kept.Path = probe.HTTPGet.Host, probe.HTTPGet.Path
		if probe.HTTPGet.Scheme != "" {
			kept.Scheme = strings.ToLower(string(probe.HTTPGet.Scheme))
		}
		if port := resolvePort(container, probe.HTTPGet.Port); port != 0 {
			kept.Port = port
		}
	}
	for _, argument := range slices.Concat(container.Command, container.Args) {
		kept.readFlag(argument)
	}
	return kept
}

func resolvePort(container *corev1.Container, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, candidate := range container.Ports {
		if candidate.Name == port.StrVal {
			return candidate.ContainerPort
		}
	}
	return 0
}

// readFlag keeps the flags that checks read, and no other: some hold secrets.
func (c *Component) readFlag(argument string) {
	name, value, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
	switch name {
	case "quota-backend-bytes":
		if quota, err := strconv.ParseInt(value, 10, 64); err == nil && quota > 0 {
			c.QuotaBytes = quota
		}
	case "leader-elect":
		c.NoLeaderElection = value == "false"
	}
}

// nodeLocal is true when the pod's own probe goes to the loopback of its node
// and that node is elsewhere, so that nobody but its kubelet can ask it.
func (c *Component) nodeLocal() bool {
	return isLoopback(c.ProbeHost) && !isLoopback(c.PodIP)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func quantities(list corev1.ResourceList) map[string]float64 {
	if len(list) == 0 {
		return nil
	}
	kept := make(map[string]float64, len(list))
	for name, quantity := range list {
		kept[string(name)] = asFloat(quantity)
	}
	return kept
}

func asFloat(q resource.Quantity) float64 { return q.AsApproximateFloat64() }
