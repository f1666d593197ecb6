package content

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/control"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

//go:embed kwok/stages.yaml
var stages string

//go:embed kwok/usage.yaml
var usage string

// KWOKConfig is the configuration file of KWOK: stages of nodes and pods, and
// the metrics of each node's kubelet.
func KWOKConfig() (string, error) {
	documents := []string{stages, usage}
	for _, page := range []struct {
		path  string
		lines []series
	}{{"metrics", kubeletPage()}, {"metrics/resource", resourcePage()}, {"metrics/cadvisor", cadvisorPage()}} {
		text, err := metricObject(page.path, page.lines)
		if err != nil {
			return "", fmt.Errorf("render metrics of page %s: %w", page.path, err)
		}
		documents = append(documents, text)
	}
	for i := range documents {
		documents[i] = strings.TrimSpace(documents[i])
	}
	return strings.Join(documents, "\n---\n") + "\n", nil
}

// KWOK is the arguments of kwok. It manages the nodes whose heartbeat is on:
// taking the label off a node lets its lease run out.
func KWOK(c layout.Cluster) []string {
	return []string{
		"--kubeconfig=" + c.ClientConfig("kwok"),
		"--config=" + c.Path("kwok.yaml"),
		"--manage-nodes-with-label-selector=" + LabelHeartbeat + "=" + HeartbeatOn,
		fmt.Sprintf("--node-lease-duration-seconds=%d", control.NodeLease),
		"--cidr=" + layout.PodCIDR,
		"--node-ip=127.0.0.1",
		fmt.Sprintf("--server-address=127.0.0.1:%d", c.KWOKPort()),
		"-v=WARN",
	}
}

// KubeStateMetrics is the arguments of kube-state-metrics.
func KubeStateMetrics(c layout.Cluster) []string {
	return []string{
		"--kubeconfig=" + c.ClientConfig("kube-state-metrics"),
		"--host=127.0.0.1", fmt.Sprintf("--port=%d", c.KSMPort()),
		"--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", c.KSMTelemetryPort()),
	}
}

// Corefile is the configuration of CoreDNS, the same for all replicas: each
// listens on the address in its environment variable POD_IP.
func Corefile(c layout.Cluster) string {
	return fmt.Sprintf(`.:%d {
    bind {$POD_IP}
    errors
    health {$POD_IP}:%d
    ready {$POD_IP}:%d
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
        ttl 30
    }
    prometheus {$POD_IP}:%d
    cache 30
    loadbalance
}
`, c.DNSPort(), c.DNSHealthPort(), c.DNSReadyPort(), c.ClientConfig("coredns"), c.DNSMetricsPort())
}
