package bed

import (
	"context"
	"fmt"
	"net"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

// checkPorts reports the first address that something else uses.
func checkPorts(ctx context.Context, o layout.Options) error {
	var lc net.ListenConfig
	for _, c := range o.ClusterList() {
		addresses := []string{}
		for _, port := range ports(c) {
			addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
		}
		for i := range layout.DNSReplicas {
			for _, port := range []int{c.DNSPort(), c.DNSMetricsPort(), c.DNSHealthPort(), c.DNSReadyPort()} {
				addresses = append(addresses, fmt.Sprintf("%s:%d", c.DNSAddress(i), port))
			}
		}
		for _, n := range c.Nodes() {
			addresses = append(addresses, fmt.Sprintf("%s:%d", n.IP, c.KubeletPort()))
		}
		for _, address := range addresses {
			l, err := lc.Listen(ctx, "tcp", address)
			if err != nil {
				return fmt.Errorf("cluster %s cannot listen on %s: %w; free the port or choose others with --port-base", c.Name, address, err)
			}
			l.Close()
		}
	}
	return nil
}

// ports are those on 127.0.0.1.
func ports(c layout.Cluster) []int {
	out := []int{
		c.ControllerPort(), c.SchedulerPort(), c.KubeletHealthPort(), c.KWOKPort(),
		c.KSMPort(), c.KSMTelemetryPort(), c.AppPort(), c.AppServicePort(),
		c.NodeExporterPort(),
	}
	for i := range c.Options().APIServers {
		out = append(out, c.APIServerPort(i))
	}
	for i := range c.Options().EtcdMembers {
		out = append(out, c.EtcdClientPort(i), c.EtcdPeerPort(i), c.EtcdMetricsPort(i))
	}
	return out
}
