package checks

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// input is a snapshot with the indexes that several checks share.
type input struct {
	*snapshot.Snapshot
	byLabel     map[string][]int // namespace, label, value -> indexes of Pods
	byNamespace map[string][]int
	slices      map[string][]int // namespace/service -> indexes of EndpointSlices
	nodes       map[string]*snapshot.Node
	selecting   map[string][]map[string]string // namespace -> selectors of its services
}

func newInput(snap *snapshot.Snapshot) *input {
	in := &input{
		Snapshot: snap,
		byLabel:  map[string][]int{}, byNamespace: map[string][]int{},
		slices: map[string][]int{}, nodes: map[string]*snapshot.Node{}, selecting: map[string][]map[string]string{},
	}
	for i := range snap.Pods {
		pod := &snap.Pods[i]
		in.byNamespace[pod.Namespace] = append(in.byNamespace[pod.Namespace], i)
		for name, value := range pod.Labels {
			key := labelKey(pod.Namespace, name, value)
			in.byLabel[key] = append(in.byLabel[key], i)
		}
	}
	for i := range snap.EndpointSlices {
		slice := &snap.EndpointSlices[i]
		key := slice.Namespace + "/" + slice.Service
		in.slices[key] = append(in.slices[key], i)
	}
	for i := range snap.Services {
		if service := &snap.Services[i]; len(service.Selector) > 0 {
			in.selecting[service.Namespace] = append(in.selecting[service.Namespace], service.Selector)
		}
	}
	for i := range snap.Nodes {
		in.nodes[snap.Nodes[i].Name] = &snap.Nodes[i]
	}
	return in
}

func labelKey(namespace, name, value string) string {
	return namespace + "\x00" + name + "\x00" + value
}

// now is the cluster's clock at the moment when resource was read.
func (in *input) now(resource snapshot.Resource) time.Time {
	at := in.Reads[resource].At
	if at.IsZero() {
		at = in.Started
	}
	return at.Add(in.ClockSkew)
}

// read is true when a resource is there, whole.
func (in *input) read(resource snapshot.Resource) bool {
	read, tried := in.Reads[resource]
	return tried && read.Problem == nil
}

// podsWith returns the pods of a namespace that carry all labels of a plain selector.
func (in *input) podsWith(namespace string, selector map[string]string) []*snapshot.Pod {
	return in.pick(namespace, selector, labels.SelectorFromSet(selector))
}

// podsOf returns the pods of a workload, which its selector defines.
func (in *input) podsOf(w *snapshot.Workload) []*snapshot.Pod {
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil || w.Selector == nil {
		return nil
	}
	return in.pick(w.Namespace, w.Selector.MatchLabels, selector)
}

// pick starts from the rarest of the required labels, so that a big namespace
// with many selectors costs no product of the two.
func (in *input) pick(namespace string, required map[string]string, selector labels.Selector) []*snapshot.Pod {
	candidates := in.byNamespace[namespace]
	for name, value := range required {
		if fewer := in.byLabel[labelKey(namespace, name, value)]; len(fewer) < len(candidates) {
			candidates = fewer
		}
	}
	var picked []*snapshot.Pod
	for _, i := range candidates {
		if pod := &in.Pods[i]; selector.Matches(labels.Set(pod.Labels)) {
			picked = append(picked, pod)
		}
	}
	return picked
}

// component returns the static pods of a control plane component.
func (in *input) component(name string) []*snapshot.Pod {
	var pods []*snapshot.Pod
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.Component != nil && pod.Component.Name == name && !finished(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

const hosted = "no static pod of it is visible: the control plane is hosted or runs elsewhere"

func finished(pod *snapshot.Pod) bool { return pod.Phase == "Succeeded" || pod.Phase == "Failed" }

func ready(pod *snapshot.Pod) bool { return pod.Ready != nil && pod.Ready.Status == "True" }

func find(conditions []snapshot.Condition, kind string) *snapshot.Condition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

func isTrue(conditions []snapshot.Condition, kind string) bool {
	found := find(conditions, kind)
	return found != nil && found.Status == "True"
}

func podObject(pod *snapshot.Pod) Object { return Object{"Pod", pod.Namespace, pod.Name} }

func nodeObject(name string) Object { return Object{Kind: "Node", Name: name} }

func object(kind string, meta snapshot.Meta) Object { return Object{kind, meta.Namespace, meta.Name} }

func workloadObject(w *snapshot.Workload) Object { return object(w.Kind, w.Meta) }

// age prints a duration as people say it: 45s, 12m, 5h, 3d.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

func percent(part, whole float64) string { return fmt.Sprintf("%.1f %%", 100*part/whole) }

func bytes(n float64) string {
	const unit = 1024
	for _, name := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < unit {
			return fmt.Sprintf("%.4g %s", n, name)
		}
		n /= unit
	}
	return fmt.Sprintf("%.4g TiB", n)
}
