// Package layout says where everything of a testbed is: names of clusters and
// nodes, ports, addresses and files. It is pure: the same options give the same
// answer, nothing is looked up, and nothing is written.
//
// Every port lies in [base, base+100*clusters); every address is in 127.0.0.0/8.
package layout

import (
	"fmt"
	"path/filepath"
)

// Bounds of what one testbed may be asked for.
const (
	MaxClusters   = 26
	MaxNodes      = 1000
	MaxAPIServers = 2
	DNSReplicas   = 2   // as kubeadm has them
	PortsEach     = 100 // ports reserved for one cluster
	DefaultBase   = 10100
)

// Options is the shape of a testbed.
type Options struct {
	Dir         string `json:"dir"`
	PortBase    int    `json:"port_base"`
	Clusters    int    `json:"clusters"`
	Nodes       int    `json:"nodes"` // workers of each cluster
	EtcdMembers int    `json:"etcd_members"`
	APIServers  int    `json:"apiservers"`
	Broken      bool   `json:"broken"`
	AppSeries   int    `json:"app_series"`
}

// Validate reports the first option that cannot be served.
func (o Options) Validate() error {
	switch {
	case o.Dir == "":
		return fmt.Errorf("--dir is empty: give a directory")
	case o.Clusters < 1 || o.Clusters > MaxClusters:
		return fmt.Errorf("--clusters is %d: want 1 to %d", o.Clusters, MaxClusters)
	case o.Nodes < 1 || o.Nodes > MaxNodes:
		return fmt.Errorf("--nodes is %d: want 1 to %d", o.Nodes, MaxNodes)
	case o.EtcdMembers != 1 && o.EtcdMembers != 3:
		return fmt.Errorf("--etcd-members is %d: want 1 or 3", o.EtcdMembers)
	case o.APIServers < 1 || o.APIServers > MaxAPIServers:
		return fmt.Errorf("--apiservers is %d: want 1 or 2", o.APIServers)
	case o.AppSeries < 1 || o.AppSeries > 100_000:
		return fmt.Errorf("--app-series is %d: want 1 to 100000", o.AppSeries)
	case o.PortBase < 1024 || o.PortBase+PortsEach*o.Clusters > 65536:
		return fmt.Errorf("--port-base is %d: want 1024 to %d for %d clusters", o.PortBase, 65536-PortsEach*o.Clusters, o.Clusters)
	}
	return nil
}

// Kubeconfig is the one kubeconfig with a context for each cluster.
func (o Options) Kubeconfig() string { return filepath.Join(o.Dir, "kubeconfig") }

// ClusterList returns the clusters in order.
func (o Options) ClusterList() []Cluster {
	out := make([]Cluster, o.Clusters)
	for i := range out {
		out[i] = Cluster{
			Index: i, Name: string(rune('a' + i)), opts: o,
			Dir: filepath.Join(o.Dir, "clusters", string(rune('a'+i))),
		}
	}
	return out
}

// Cluster is one cluster's share of the layout.
type Cluster struct {
	Index int
	Name  string
	Dir   string
	opts  Options
}

// Options are the options of the whole testbed.
func (c Cluster) Options() Options { return c.opts }

func (c Cluster) port(offset int) int { return c.opts.PortBase + PortsEach*c.Index + offset }

// The ports of a cluster, by offset from its base.
func (c Cluster) APIServerPort(i int) int   { return c.port(i) }
func (c Cluster) EtcdClientPort(i int) int  { return c.port(10 + i) }
func (c Cluster) EtcdPeerPort(i int) int    { return c.port(13 + i) }
func (c Cluster) EtcdMetricsPort(i int) int { return c.port(16 + i) }
func (c Cluster) ControllerPort() int       { return c.port(20) }
func (c Cluster) SchedulerPort() int        { return c.port(21) }
func (c Cluster) KubeletPort() int          { return c.port(30) }
func (c Cluster) KubeletHealthPort() int    { return c.port(31) }
func (c Cluster) KWOKPort() int             { return c.port(32) }
func (c Cluster) KSMPort() int              { return c.port(40) }
func (c Cluster) KSMTelemetryPort() int     { return c.port(41) }
func (c Cluster) AppPort() int              { return c.port(50) }
func (c Cluster) AppServicePort() int       { return c.port(51) }
func (c Cluster) DNSPort() int              { return c.port(60) }
func (c Cluster) DNSMetricsPort() int       { return c.port(61) }
func (c Cluster) DNSHealthPort() int        { return c.port(62) }
func (c Cluster) DNSReadyPort() int         { return c.port(63) }
func (c Cluster) NodeExporterPort() int     { return c.port(70) }

// DNSAddress is the address of CoreDNS i. The replicas of a Deployment share
// their ports, so each has an address of its own, as pods have.
func (c Cluster) DNSAddress(i int) string { return fmt.Sprintf("127.%d.251.%d", 10+c.Index, i+1) }

// Server is the URL of API server i.
func (c Cluster) Server(i int) string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.APIServerPort(i))
}

// Networks of a cluster: the same in all, as they often are in a fleet.
const (
	PodCIDR     = "10.128.0.0/9"
	ServiceCIDR = "10.96.0.0/16"
	APIService  = "10.96.0.1"
	DNSService  = "10.96.0.10"
)

// Path joins elements to the cluster's directory.
func (c Cluster) Path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// PKI is the path of a file in the cluster's PKI directory.
func (c Cluster) PKI(name string) string { return c.Path("pki", name) }

// ClientConfig is the kubeconfig of one component.
func (c Cluster) ClientConfig(name string) string { return c.Path("kubeconfigs", name+".conf") }

// Log is the log file of one process.
func (c Cluster) Log(name string) string { return c.Path("logs", name+".log") }

// HoldFile, while it exists, keeps a process down.
func (c Cluster) HoldFile(process string) string { return c.Path("holds", process) }

// Node is one simulated node.
type Node struct {
	Name         string
	IP           string
	Zone         string
	ControlPlane bool
	Index        int // among the nodes of its kind
}

var zones = [...]string{"zone-1", "zone-2", "zone-3"}

// ControlPlanes is the number of control-plane nodes: enough for every API
// server and every etcd member to have a node of its own.
func (c Cluster) ControlPlanes() int { return max(c.opts.APIServers, c.opts.EtcdMembers) }

// ControlPlaneNode returns control-plane node i.
func (c Cluster) ControlPlaneNode(i int) Node {
	return Node{
		Name: fmt.Sprintf("%s-cp-%d", c.Name, i), IP: fmt.Sprintf("127.%d.250.%d", 10+c.Index, i+1),
		Zone: zones[i%len(zones)], ControlPlane: true, Index: i,
	}
}

// Nodes returns the control-plane nodes, then the workers.
func (c Cluster) Nodes() []Node {
	out := make([]Node, 0, c.ControlPlanes()+c.opts.Nodes)
	for i := range c.ControlPlanes() {
		out = append(out, c.ControlPlaneNode(i))
	}
	for i := range c.opts.Nodes {
		out = append(out, Node{
			Name: fmt.Sprintf("%s-worker-%03d", c.Name, i+1),
			IP:   fmt.Sprintf("127.%d.%d.%d", 10+c.Index, i/250, i%250+1),
			Zone: zones[i%len(zones)], Index: i,
		})
	}
	return out
}
