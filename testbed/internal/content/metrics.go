package content

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The metrics of a node's kubelet, as KWOK's Metric objects: each value is a
// CEL expression over node, pod and container. Values that only grow are made
// from the age of the object or from accumulated usage, so rates are steady.

// series is one line of a Metric object; families with several label sets
// have several lines.
type series struct {
	name   string
	kind   string // counter, gauge, histogram
	dim    string // node, pod, container
	labels map[string]string
	value  string
	help   string
	// growth and bounds describe a histogram: observations per second of the
	// node's age, and the share of them in each bucket.
	growth float64
	bounds []Bucket
}

// Label sets of the pages.
var (
	ofContainer = map[string]string{"container": "container.name", "namespace": "pod.metadata.namespace", "pod": "pod.metadata.name"}
	ofPod       = map[string]string{"namespace": "pod.metadata.namespace", "pod": "pod.metadata.name"}
	cContainer  = map[string]string{
		"container": "container.name", "namespace": "pod.metadata.namespace", "pod": "pod.metadata.name", "image": "container.image", "name": "container.name",
		"id": `"/kubepods.slice/pod" + string(pod.metadata.uid) + "/" + container.name`,
	}
	cPod = map[string]string{
		"container": `""`, "namespace": "pod.metadata.namespace", "pod": "pod.metadata.name", "image": `""`, "name": `""`,
		"id": `"/kubepods.slice/pod" + string(pod.metadata.uid)`,
	}
	cNode = map[string]string{"container": `""`, "namespace": `""`, "pod": `""`, "image": `""`, "name": `""`, "id": `"/"`}
)

// with adds labels with constant values to a set.
func with(set map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(set)
	if out == nil {
		out = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = fmt.Sprintf("%q", pairs[i+1])
	}
	return out
}

const (
	cpuOfContainer = `pod.CumulativeUsage("cpu", container.name)`
	memOfContainer = `pod.Usage("memory", container.name)`
	nodeAge        = "node.SinceSecond()"
)

// resourcePage is /metrics/resource.
func resourcePage() []series {
	return []series{
		{name: "container_start_time_seconds", kind: "gauge", dim: "container", labels: ofContainer, value: "UnixSecond(pod.metadata.creationTimestamp)", help: "[STABLE] Start time of the container since unix epoch in seconds"},
		{name: "container_cpu_usage_seconds_total", kind: "counter", dim: "container", labels: ofContainer, value: cpuOfContainer, help: "[STABLE] Cumulative cpu time consumed by the container in core-seconds"},
		{name: "container_memory_working_set_bytes", kind: "gauge", dim: "container", labels: ofContainer, value: memOfContainer, help: "[STABLE] Current working set of the container in bytes"},
		{name: "pod_cpu_usage_seconds_total", kind: "counter", dim: "pod", labels: ofPod, value: `pod.CumulativeUsage("cpu")`, help: "[STABLE] Cumulative cpu time consumed by the pod in core-seconds"},
		{name: "pod_memory_working_set_bytes", kind: "gauge", dim: "pod", labels: ofPod, value: `pod.Usage("memory")`, help: "[STABLE] Current working set of the pod in bytes"},
		{name: "node_cpu_usage_seconds_total", kind: "counter", dim: "node", value: `node.CumulativeUsage("cpu")`, help: "[STABLE] Cumulative cpu time consumed by the node in core-seconds"},
		{name: "node_memory_working_set_bytes", kind: "gauge", dim: "node", value: `node.Usage("memory")`, help: "[STABLE] Current working set of the node in bytes"},
		{name: "resource_scrape_error", kind: "gauge", dim: "node", value: "0", help: "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise"},
	}
}

// CadvisorPrefix marks families of /metrics/cadvisor that /metrics/resource has
// too, with other labels. KWOK keeps one registry for all pages of a node, which
// refuses that; so they carry the prefix there, and the kubelets take it off.
const CadvisorPrefix = "cadvisor:"

// cadvisorPage is /metrics/cadvisor.
func cadvisorPage() []series {
	shared := map[string]bool{}
	for _, s := range resourcePage() {
		shared[s.name] = true
	}
	out := cadvisorFamilies()
	for i := range out {
		if shared[out[i].name] {
			out[i].name = CadvisorPrefix + out[i].name
		}
	}
	return out
}

func cadvisorFamilies() []series {
	c := func(name, kind, value, help string, pairs ...string) series {
		return series{name: "container_" + name, kind: kind, dim: "container", labels: with(cContainer, pairs...), value: value, help: help}
	}
	out := []series{
		{name: "cadvisor_version_info", kind: "gauge", dim: "node", labels: with(nil, "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", "6.12.43", "osVersion", "Debian GNU/Linux 13 (trixie)"), value: "1", help: "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision."},
		{name: "machine_cpu_cores", kind: "gauge", dim: "node", labels: with(nil, "boot_id", "", "machine_id", "", "system_uuid", ""), value: `node.status.capacity["cpu"]`, help: "Number of logical CPU cores."},
		{name: "machine_memory_bytes", kind: "gauge", dim: "node", labels: with(nil, "boot_id", "", "machine_id", "", "system_uuid", ""), value: `node.status.capacity["memory"]`, help: "Amount of memory installed on the machine."},
		{name: "container_scrape_error", kind: "gauge", dim: "node", value: "0", help: "1 if there was an error while getting container metrics, 0 otherwise"},

		c("cpu_usage_seconds_total", "counter", cpuOfContainer, "Cumulative cpu time consumed in seconds.", "cpu", "total"),
		{name: "container_cpu_usage_seconds_total", kind: "counter", dim: "pod", labels: with(cPod, "cpu", "total"), value: `pod.CumulativeUsage("cpu")`, help: "Cumulative cpu time consumed in seconds."},
		{name: "container_cpu_usage_seconds_total", kind: "counter", dim: "node", labels: with(cNode, "cpu", "total"), value: `node.CumulativeUsage("cpu")`, help: "Cumulative cpu time consumed in seconds."},
		c("cpu_user_seconds_total", "counter", cpuOfContainer+" * 0.7", "Cumulative user cpu time consumed in seconds."),
		c("cpu_system_seconds_total", "counter", cpuOfContainer+" * 0.3", "Cumulative system cpu time consumed in seconds."),
		c("cpu_cfs_periods_total", "counter", "int(pod.SinceSecond() * 10.0)", "Number of elapsed enforcement period intervals."),
		c("cpu_cfs_throttled_periods_total", "counter", "int(pod.SinceSecond() * 0.02)", "Number of throttled period intervals."),
		c("cpu_cfs_throttled_seconds_total", "counter", "pod.SinceSecond() * 0.0006", "Total time duration the container has been throttled."),
		c("spec_cpu_period", "gauge", "100000", "CPU period of the container."),
		c("spec_cpu_quota", "gauge", `container.resources.limits["cpu"] * 100000`, "CPU quota of the container."),
		c("spec_cpu_shares", "gauge", `container.resources.requests["cpu"] * 1024`, "CPU share of the container."),
		c("spec_memory_limit_bytes", "gauge", `container.resources.limits["memory"]`, "Memory limit for the container."),
		c("memory_working_set_bytes", "gauge", memOfContainer, "Current working set in bytes."),
		{name: "container_memory_working_set_bytes", kind: "gauge", dim: "pod", labels: cPod, value: `pod.Usage("memory")`, help: "Current working set in bytes."},
		{name: "container_memory_working_set_bytes", kind: "gauge", dim: "node", labels: cNode, value: `node.Usage("memory")`, help: "Current working set in bytes."},
		c("memory_usage_bytes", "gauge", "int("+memOfContainer+" * 1.15)", "Current memory usage in bytes, including all memory regardless of when it was accessed"),
		c("memory_rss", "gauge", "int("+memOfContainer+" * 0.85)", "Size of RSS in bytes."),
		c("memory_cache", "gauge", "int("+memOfContainer+" * 0.3)", "Number of bytes of page cache memory."),
		c("memory_failcnt", "counter", "0", "Number of memory usage hits limits"),
		c("oom_events_total", "counter", "0", "Count of out of memory events observed for the container"),
		c("fs_usage_bytes", "gauge", "8388608 + int(pod.SinceSecond() / 60.0) * 4096", "Number of bytes that are consumed by the container on this filesystem.", "device", "/dev/vda1"),
		c("fs_reads_bytes_total", "counter", "int("+cpuOfContainer+" * 40000.0)", "Cumulative count of bytes read", "device", "/dev/vda"),
		c("fs_writes_bytes_total", "counter", "int("+cpuOfContainer+" * 90000.0)", "Cumulative count of bytes written", "device", "/dev/vda"),
		c("processes", "gauge", `pod.Usage("containers", container.name)`, "Number of processes running inside the container."),
		c("threads", "gauge", `pod.Usage("containers", container.name) * 9.0`, "Number of threads running inside the container"),
		c("start_time_seconds", "gauge", "UnixSecond(pod.metadata.creationTimestamp)", "Start time of the container since unix epoch in seconds."),
		c("last_seen", "gauge", "UnixSecond(Now())", "Last time a container was seen by the exporter"),
	}
	for _, n := range []struct {
		name  string
		value string
		help  string
	}{
		{"receive_bytes_total", `int(pod.CumulativeUsage("cpu") * 1200000.0)`, "Cumulative count of bytes received"},
		{"transmit_bytes_total", `int(pod.CumulativeUsage("cpu") * 900000.0)`, "Cumulative count of bytes transmitted"},
		{"receive_packets_total", `int(pod.CumulativeUsage("cpu") * 1500.0)`, "Cumulative count of packets received"},
		{"transmit_packets_total", `int(pod.CumulativeUsage("cpu") * 1400.0)`, "Cumulative count of packets transmitted"},
		{"receive_errors_total", "0", "Cumulative count of errors encountered while receiving"},
		{"transmit_errors_total", "0", "Cumulative count of errors encountered while transmitting"},
		{"receive_packets_dropped_total", "0", "Cumulative count of packets dropped while receiving"},
		{"transmit_packets_dropped_total", "0", "Cumulative count of packets dropped while transmitting"},
	} {
		out = append(out, series{name: "container_network_" + n.name, kind: "counter", dim: "pod", labels: with(cPod, "interface", "eth0"), value: n.value, help: n.help})
	}
	return out
}

// kubeletPage is /metrics.
func kubeletPage() []series {
	n := func(name, kind, value, help string, pairs ...string) series {
		var labels map[string]string
		if len(pairs) > 0 {
			labels = with(nil, pairs...)
		}
		return series{name: name, kind: kind, dim: "node", labels: labels, value: value, help: help}
	}
	h := func(name string, growth float64, scale float64, help string) series {
		s := n(name, "histogram", "", help)
		s.growth, s.bounds = growth, Latencies(scale)
		return s
	}
	out := []series{
		{name: "kubelet_node_name", kind: "gauge", dim: "node", labels: map[string]string{"node": "node.metadata.name"}, value: "1", help: "[ALPHA] The node's name. The count is always 1."},
		n("kubernetes_build_info", "gauge", "1", "[BETA] A metric with a constant '1' value labeled by version, platform and Go version.", "git_version", KubernetesVersion, "major", "1", "minor", "37", "platform", "linux/amd64"),
		n("kubelet_running_pods", "gauge", `node.Usage("pods")`, "[BETA] Number of pods that have a running pod sandbox"),
		n("kubelet_running_containers", "gauge", `node.Usage("containers")`, "[BETA] Number of containers currently running", "container_state", "running"),
		n("kubelet_active_pods", "gauge", `node.Usage("pods")`, "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods.", "static", ""),
		n("kubelet_started_pods_total", "counter", "node.StartedContainersTotal()", "[ALPHA] Cumulative number of pods started"),
		n("kubelet_started_pods_errors_total", "counter", "0", "[ALPHA] Cumulative number of errors when starting pods"),
		n("kubelet_started_containers_total", "counter", "node.StartedContainersTotal()", "[ALPHA] Cumulative number of containers started", "container_type", "container"),
		n("kubelet_started_containers_errors_total", "counter", "0", "[ALPHA] Cumulative number of errors when starting containers", "code", "ErrImagePull", "container_type", "container"),
		n("kubelet_evictions", "counter", "0", "[ALPHA] Cumulative number of pod evictions by eviction signal", "eviction_signal", "memory.available"),
		n("kubelet_node_startup_duration_seconds", "gauge", "2.4", "[ALPHA] Duration in seconds of node startup in total."),
		n("kubelet_certificate_manager_client_expiration_renew_errors", "counter", "0", "[ALPHA] Counter of certificate renewal errors."),
		n("kubelet_server_expiration_renew_errors", "counter", "0", "[ALPHA] Counter of certificate renewal errors."),
		n("volume_manager_total_volumes", "gauge", `node.Usage("pods")`, "[ALPHA] Number of volumes in Volume Manager", "plugin_name", "kubernetes.io/projected", "state", "actual_state_of_world"),
		n("process_cpu_seconds_total", "counter", nodeAge+" * 0.021", "Total user and system CPU time spent in seconds."),
		n("process_resident_memory_bytes", "gauge", `78643200.0 + node.Usage("pods") * 524288.0`, "Resident memory size in bytes."),
		n("process_open_fds", "gauge", `38.0 + node.Usage("pods") * 2.0`, "Number of open file descriptors."),
		n("process_start_time_seconds", "gauge", "UnixSecond(node.metadata.creationTimestamp)", "Start time of the process since unix epoch in seconds."),
		n("go_goroutines", "gauge", `110.0 + node.Usage("pods") * 7.0`, "Number of goroutines that currently exist."),
		n("rest_client_requests_total", "counter", "int("+nodeAge+" * 0.3)", "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", "code", "200", "host", "apiserver", "method", "GET"),
		n("rest_client_requests_total", "counter", "int("+nodeAge+" * 0.2)", "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", "code", "200", "host", "apiserver", "method", "PUT"),
		n("rest_client_requests_total", "counter", "0", "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", "code", "500", "host", "apiserver", "method", "GET"),
		n("storage_operation_errors_total", "counter", "0", "[ALPHA] Storage operation errors", "operation_name", "volume_mount", "volume_plugin", "kubernetes.io/projected"),
		h("kubelet_pleg_relist_duration_seconds", 1, 1, "[ALPHA] Duration in seconds for relisting pods in PLEG."),
		h("kubelet_pleg_relist_interval_seconds", 1, 10, "[ALPHA] Interval in seconds between relisting in PLEG."),
		h("kubelet_pod_start_duration_seconds", 0.01, 10, "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run"),
	}
	for _, o := range RuntimeOperations() {
		out = append(out,
			n("kubelet_runtime_operations_total", "counter", fmt.Sprintf("int(%s * %v)", nodeAge, float(o.Rate)), "[ALPHA] Cumulative number of runtime operations by operation type.", "operation_type", o.Name),
			n("kubelet_runtime_operations_errors_total", "counter", "0", "[ALPHA] Cumulative number of runtime operation errors by operation type.", "operation_type", o.Name))
	}
	return out
}

// Operation is something a kubelet does, and how often in a second.
type Operation struct {
	Name string
	Rate float64
}

// RuntimeOperations are what a kubelet asks of its container runtime.
func RuntimeOperations() []Operation {
	return []Operation{
		{"container_status", 0.9},
		{"create_container", 0.01},
		{"exec_sync", 0.4},
		{"image_status", 0.1},
		{"list_containers", 1},
		{"list_images", 0.033},
		{"list_podsandbox", 1},
		{"podsandbox_status", 0.5},
		{"pull_image", 0.004},
		{"remove_container", 0.005},
		{"run_podsandbox", 0.008},
		{"start_container", 0.01},
		{"status", 0.2},
		{"stop_container", 0.006},
		{"version", 0.1},
	}
}

// Bucket is an upper bound of a histogram and the share of observations
// between it and the bound below.
type Bucket struct{ Le, Share float64 }

// Latencies is a distribution of durations; scale stretches it.
func Latencies(scale float64) []Bucket {
	out := []Bucket{
		{0.005, 0.42},
		{0.01, 0.25},
		{0.025, 0.17},
		{0.05, 0.08},
		{0.1, 0.05},
		{0.25, 0.02},
		{0.5, 0.008},
		{1, 0.002},
		{2.5, 0},
		{5, 0},
		{10, 0},
	}
	for i := range out {
		out[i].Le *= scale
	}
	return out
}

// float prints as a CEL double, which needs a decimal point.
type float float64

// Format writes the shortest form that has a decimal point.
func (f float) Format(s fmt.State, _ rune) {
	text := fmt.Sprint(float64(f))
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	fmt.Fprint(s, text)
}

// metricObject renders a page as a Metric object.
func metricObject(page string, lines []series) (string, error) {
	type pair struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	type step struct {
		Le     float64 `json:"le"`
		Value  string  `json:"value"`
		Hidden bool    `json:"hidden,omitempty"`
	}
	type metric struct {
		Name      string `json:"name"`
		Help      string `json:"help"`
		Kind      string `json:"kind"`
		Dimension string `json:"dimension"`
		Labels    []pair `json:"labels,omitempty"`
		Value     string `json:"value,omitempty"`
		Buckets   []step `json:"buckets,omitempty"`
	}
	var metrics []metric
	for _, s := range lines {
		m := metric{Name: s.name, Help: s.help, Kind: s.kind, Dimension: s.dim, Value: s.value}
		for _, name := range slices.Sorted(maps.Keys(s.labels)) {
			m.Labels = append(m.Labels, pair{name, s.labels[name]})
		}
		for _, b := range s.bounds {
			m.Buckets = append(m.Buckets, step{Le: b.Le, Value: fmt.Sprintf("%s * %v", nodeAge, float(s.growth*b.Share))})
		}
		if len(s.bounds) > 0 {
			// KWOK fills the +Inf bucket only if a value lies beyond the last bound.
			m.Buckets = append(m.Buckets, step{Le: 2 * s.bounds[len(s.bounds)-1].Le, Value: "0", Hidden: true})
		}
		metrics = append(metrics, m)
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Metric",
		"metadata": map[string]string{"name": strings.ReplaceAll(page, "/", "-")},
		"spec":     map[string]any{"path": "/metrics/nodes/{nodeName}/" + page, "metrics": metrics},
	})
	return string(data), err
}
