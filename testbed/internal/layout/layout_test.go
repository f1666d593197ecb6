package layout_test

import (
	"net"
	"strings"
	"testing"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

func options() layout.Options {
	return layout.Options{Dir: "/d", PortBase: 10100, Clusters: 3, Nodes: 600, EtcdMembers: 3, APIServers: 2, AppSeries: 10}
}

func TestPortsAreDistinctAndInRange(t *testing.T) {
	o := options()
	seen := map[int]string{}
	for _, c := range o.ClusterList() {
		ports := map[string]int{
			"kcm": c.ControllerPort(), "scheduler": c.SchedulerPort(), "kubelet": c.KubeletPort(), "kubelet-health": c.KubeletHealthPort(),
			"kwok": c.KWOKPort(), "ksm": c.KSMPort(), "ksm-telemetry": c.KSMTelemetryPort(), "app": c.AppPort(), "app-service": c.AppServicePort(),
			"dns": c.DNSPort(), "dns-metrics": c.DNSMetricsPort(), "dns-health": c.DNSHealthPort(), "dns-ready": c.DNSReadyPort(),
			"api-0": c.APIServerPort(0), "api-1": c.APIServerPort(1),
		}
		for i := range 3 {
			for name, port := range map[string]int{"client": c.EtcdClientPort(i), "peer": c.EtcdPeerPort(i), "metrics": c.EtcdMetricsPort(i)} {
				ports["etcd-"+name+string(rune('0'+i))] = port
			}
		}
		low := o.PortBase + layout.PortsEach*c.Index
		for name, port := range ports {
			if other, taken := seen[port]; taken {
				t.Errorf("port %d of %s/%s is also %s", port, c.Name, name, other)
			}
			seen[port] = c.Name + "/" + name
			if port < low || port >= low+layout.PortsEach {
				t.Errorf("port %d of %s/%s is outside [%d, %d)", port, c.Name, name, low, low+layout.PortsEach)
			}
		}
	}
}

func TestNodesHaveOwnLoopbackAddresses(t *testing.T) {
	names, addresses := map[string]bool{}, map[string]bool{}
	zones := map[string]int{}
	for _, c := range options().ClusterList() {
		nodes := c.Nodes()
		if len(nodes) != 603 {
			t.Fatalf("cluster %s has %d nodes, want 600 workers and 3 control planes", c.Name, len(nodes))
		}
		for i := range layout.DNSReplicas {
			nodes = append(nodes, layout.Node{Name: c.Name + "-dns-" + string(rune('0'+i)), IP: c.DNSAddress(i), Zone: nodes[i].Zone})
		}
		for _, n := range nodes {
			ip := net.ParseIP(n.IP)
			if ip == nil || !ip.IsLoopback() {
				t.Errorf("node %s has address %q, want one in 127.0.0.0/8", n.Name, n.IP)
			}
			if names[n.Name] || addresses[n.IP] {
				t.Errorf("node %s at %s is there twice", n.Name, n.IP)
			}
			names[n.Name], addresses[n.IP] = true, true
			zones[n.Zone]++
		}
	}
	if len(zones) != 3 {
		t.Errorf("nodes are in zones %v, want three", zones)
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*layout.Options)
		want   string
	}{
		{"fine", func(*layout.Options) {}, ""},
		{"no directory", func(o *layout.Options) { o.Dir = "" }, "--dir"},
		{"no cluster", func(o *layout.Options) { o.Clusters = 0 }, "--clusters"},
		{"more clusters than letters", func(o *layout.Options) { o.Clusters = 27 }, "--clusters"},
		{"no node", func(o *layout.Options) { o.Nodes = 0 }, "--nodes"},
		{"two etcd members", func(o *layout.Options) { o.EtcdMembers = 2 }, "--etcd-members"},
		{"three API servers", func(o *layout.Options) { o.APIServers = 3 }, "--apiservers"},
		{"privileged port", func(o *layout.Options) { o.PortBase = 80 }, "--port-base"},
		{"ports run out", func(o *layout.Options) { o.PortBase = 65500 }, "--port-base"},
		{"no series", func(o *layout.Options) { o.AppSeries = 0 }, "--app-series"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options()
			tc.change(&o)
			err := o.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one about %q", err, tc.want)
			}
		})
	}
}
