package content_test

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

func cluster() layout.Cluster {
	return layout.Options{Dir: "/d", PortBase: 10100, Clusters: 1, Nodes: 5, EtcdMembers: 3, APIServers: 2, AppSeries: 1}.ClusterList()[0]
}

func TestMirrorsLookLikeStaticPods(t *testing.T) {
	mirrors := content.Mirrors(cluster())
	if len(mirrors) != 3+2+1+1 {
		t.Fatalf("%d mirrors, want 7", len(mirrors))
	}
	for _, m := range mirrors {
		pod := m.Pod
		t.Run(pod.Name, func(t *testing.T) {
			container := pod.Spec.Containers[0]
			if pod.Namespace != "kube-system" || pod.Labels["tier"] != "control-plane" || pod.Labels["component"] != container.Name {
				t.Errorf("namespace %s, labels %v", pod.Namespace, pod.Labels)
			}
			if pod.Annotations["kubernetes.io/config.mirror"] == "" || pod.Annotations["kubernetes.io/config.source"] != "file" {
				t.Errorf("annotations %v", pod.Annotations)
			}
			if !pod.Spec.HostNetwork || !strings.HasPrefix(pod.Spec.NodeName, "a-cp-") {
				t.Errorf("on node %s, hostNetwork %v", pod.Spec.NodeName, pod.Spec.HostNetwork)
			}
			if len(container.Ports) != 1 || container.Ports[0].Name != "probe-port" {
				t.Errorf("ports %v, want one named probe-port", container.Ports)
			}
			if container.Command[0] != container.Name || len(container.Command) < 10 {
				t.Errorf("command %v is not the whole command line", container.Command)
			}
		})
	}
	if mirrors[0].Pod.Annotations["kubeadm.kubernetes.io/etcd.advertise-client-urls"] != "https://127.0.0.1:10110" {
		t.Errorf("etcd has annotations %v", mirrors[0].Pod.Annotations)
	}
	if mirrors[4].Pod.Annotations["kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"] != "127.0.0.1:10101" {
		t.Errorf("kube-apiserver 1 has annotations %v", mirrors[4].Pod.Annotations)
	}
}

func TestProcessStatus(t *testing.T) {
	now := time.Now()
	pod := content.Mirrors(cluster())[6].Pod
	for _, tc := range []struct {
		name  string
		state proc.State
		ready bool
		is    string
	}{
		{"never started", proc.State{Phase: proc.Waiting}, false, "waiting: ContainerCreating"},
		{"starting", proc.State{Phase: proc.Running, Started: now}, false, "running"},
		{"ready", proc.State{Phase: proc.Ready, Started: now}, true, "running"},
		{"killed and held", proc.State{Phase: proc.Held, Started: now, ExitedAt: now, ExitCode: 137}, false, "terminated: 137"},
		{"crashed", proc.State{Phase: proc.Waiting, Started: now, ExitedAt: now, ExitCode: 1, LastExit: "exit status 1", Restarts: 3}, false, "waiting: CrashLoopBackOff"},
		{"ready after a crash", proc.State{Phase: proc.Ready, Started: now, ExitedAt: now, ExitCode: 1, Restarts: 1}, true, "running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := content.ProcessStatus(pod, "127.10.250.1", "127.0.0.1", tc.state)
			got := status.ContainerStatuses[0]
			if got.Ready != tc.ready || got.RestartCount != int32(tc.state.Restarts) {
				t.Errorf("ready %v, restarts %d", got.Ready, got.RestartCount)
			}
			if is := describe(got.State); is != tc.is {
				t.Errorf("state is %q, want %q", is, tc.is)
			}
			for _, c := range status.Conditions {
				if c.Type == corev1.PodReady && (c.Status == corev1.ConditionTrue) != tc.ready {
					t.Errorf("condition Ready is %s", c.Status)
				}
			}
			if status.PodIP != "127.0.0.1" || status.HostIP != "127.10.250.1" {
				t.Errorf("pod IP %s, host IP %s", status.PodIP, status.HostIP)
			}
		})
	}
}

func TestProcessStatusKeepsTransitionTimes(t *testing.T) {
	pod := content.Mirrors(cluster())[6].Pod.DeepCopy()
	ready := proc.State{Phase: proc.Ready, Started: time.Now()}
	pod.Status = content.ProcessStatus(pod, "127.10.250.1", "127.0.0.1", ready)
	for i := range pod.Status.Conditions {
		pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	again := content.ProcessStatus(pod, "127.10.250.1", "127.0.0.1", ready)
	for i, c := range again.Conditions {
		if !c.LastTransitionTime.Equal(&pod.Status.Conditions[i].LastTransitionTime) {
			t.Errorf("condition %s changed its time without a change", c.Type)
		}
	}
}

func describe(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return "terminated: " + strconv.Itoa(int(s.Terminated.ExitCode))
	case s.Waiting != nil:
		return "waiting: " + s.Waiting.Reason
	}
	return "none"
}

func TestManifestsRender(t *testing.T) {
	objects, err := content.Manifests(cluster(), "10-access", "20-processes", "30-coredns", "31-node-exporter", "40-demo", "60-broken")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range objects {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if err := content.Known(o); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{
		"Deployment demo-shop/frontend", "Service demo-metrics/metrics-service", "EndpointSlice default/kubernetes-testbed-1",
		"PersistentVolumeClaim demo-shop/database", "Job demo-batch/import-catalog", "CronJob demo-batch/report",
		"DaemonSet demo-platform/log-shipper", "PodDisruptionBudget demo-shop/cart", "Deployment demo-broken/broken", "ServiceAccount fleetwatch-system/fleetwatch",
	} {
		if !seen[want] {
			t.Errorf("no %s among the manifests", want)
		}
	}
}

// Each pod of CoreDNS is a process of its own, on another node and address.
func TestCoreDNSIsRedundant(t *testing.T) {
	c := cluster()
	objects, err := content.Manifests(c, "30-coredns")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	var slice discoveryv1.EndpointSlice
	for _, o := range objects {
		for kind, into := range map[string]any{"Deployment": &deployment, "EndpointSlice": &slice} {
			if o.GetKind() == kind {
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	instances := content.Instances(c, content.CoreDNS)
	if len(instances) != 2 || *deployment.Spec.Replicas != 2 {
		t.Fatalf("%d processes and %d replicas, want 2", len(instances), *deployment.Spec.Replicas)
	}
	apart := deployment.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(apart) != 1 || apart[0].TopologyKey != "kubernetes.io/hostname" || apart[0].LabelSelector.MatchLabels["k8s-app"] != "kube-dns" {
		t.Errorf("anti-affinity is %v", apart)
	}
	var addresses []string
	for _, e := range slice.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	if want := []string{instances[0].Address, instances[1].Address}; !slices.Equal(addresses, want) || want[0] == want[1] {
		t.Errorf("endpoints %v, want %v", addresses, want)
	}
}

func TestAssign(t *testing.T) {
	c := cluster()
	instances := content.Instances(c, content.CoreDNS)
	pod := func(name, process, node, ip string, age time.Duration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{content.LabelProcess: process},
				CreationTimestamp: metav1.NewTime(time.Unix(1000, 0).Add(-age)),
			},
			Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIP: ip},
		}
	}
	gone := pod("gone", "coredns", "n1", instances[0].Address, time.Hour)
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(999, 0)}
	for _, tc := range []struct {
		name string
		pods []*corev1.Pod
		want map[string]string
	}{
		{"new pods by age", []*corev1.Pod{pod("a", "coredns", "n1", "", 0), pod("b", "coredns", "n2", "", time.Minute)}, map[string]string{"a": "coredns-1", "b": "coredns-0"}},
		{"what it has it keeps", []*corev1.Pod{pod("a", "coredns", "n1", "", time.Hour), pod("b", "coredns", "n2", instances[0].Address, 0)}, map[string]string{"a": "coredns-1", "b": "coredns-0"}},
		{"an address of an earlier version", []*corev1.Pod{pod("a", "coredns", "n1", "127.0.0.1", 0)}, map[string]string{"a": "coredns-0"}},
		{"the third waits", []*corev1.Pod{pod("a", "coredns", "n1", "", 3), pod("b", "coredns", "n2", "", 2), pod("c", "coredns", "n3", "", 1)}, map[string]string{"a": "coredns-0", "b": "coredns-1"}},
		{"a terminating pod gives way", []*corev1.Pod{gone, pod("a", "coredns", "n1", "", 0)}, map[string]string{"a": "coredns-0"}},
		{"not placed yet", []*corev1.Pod{pod("a", "coredns", "", "", 0)}, map[string]string{}},
		{"a single process is shared", []*corev1.Pod{pod("a", "app", "n1", "", 0), pod("b", "app", "n2", "", 0)}, map[string]string{"a": "app", "b": "app"}},
		{"no process", []*corev1.Pod{pod("a", "", "n1", "", 0)}, map[string]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := map[string]string{}
			for pod, one := range content.Assign(c, tc.pods) {
				got[pod.Name] = one.Process
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("assigned %v, want %v", got, tc.want)
			}
		})
	}
}

func TestKWOKConfigParses(t *testing.T) {
	text, err := content.KWOKConfig()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object struct {
			Kind string
			Spec struct {
				Path    string
				Metrics []struct {
					Name, Help, Kind, Dimension, Value string
					Labels                             []struct{ Name, Value string }
					Buckets                            []struct{ Le float64 }
				}
			}
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[object.Kind]++
		for _, m := range object.Spec.Metrics {
			if m.Help == "" || (m.Value == "") == (m.Kind != "histogram") {
				t.Errorf("%s %s: help %q, value %q", object.Spec.Path, m.Name, m.Help, m.Value)
			}
			if m.Kind == "histogram" && len(m.Labels) > 0 {
				t.Errorf("%s: KWOK writes histograms without labels", m.Name)
			}
		}
	}
	if kinds["Stage"] < 6 || kinds["Metric"] != 3 || kinds["ClusterResourceUsage"] != 1 {
		t.Errorf("kinds are %v", kinds)
	}
}

// All pages of a node share a registry, which wants one help text and one set
// of label names for each name.
func TestKWOKMetricsAgree(t *testing.T) {
	text, err := content.KWOKConfig()
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]string{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object struct {
			Spec struct {
				Metrics []struct {
					Name, Help string
					Labels     []struct{ Name string }
				}
			}
		}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range object.Spec.Metrics {
			shape := m.Help
			for _, l := range m.Labels {
				shape += "|" + l.Name
			}
			if was, ok := first[m.Name]; ok && was != shape {
				t.Errorf("%s is %q and %q", m.Name, was, shape)
			}
			first[m.Name] = shape
		}
	}
}
