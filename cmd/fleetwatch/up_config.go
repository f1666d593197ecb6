package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/fleet"
)

// upConfig is everything that `fleetwatch up` can be told.
type upConfig struct {
	kubeconfig string
	contexts   []string
	dataDir    string
	binDir     string
	logLevel   string

	address  string
	portBase int
	ports    ports

	shards         int
	shardCapacity  int64
	shardRetention time.Duration
	scrapeInterval time.Duration
	scrapeTimeout  time.Duration
	scrapeConfigs  []string
	cycle          time.Duration

	eventRetention  time.Duration
	inspectInterval time.Duration

	testbedClusters int
	testbedNodes    int
}

// ports are the first ports of each kind; 0 means: from the port base.
type ports struct {
	fleetwatch, query, queryGRPC, shards, collectors, testbed int
}

// Offsets from the port base, and how many ports one shard takes: its own, its
// sidecar's HTTP and its sidecar's gRPC. Offset 2 is Alertmanager's.
const (
	offsetQuery      = 1
	offsetQueryGRPC  = 3
	offsetShards     = 10
	portsPerShard    = 3
	offsetCollectors = 100
	offsetTestbed    = 400
	maxShards        = (offsetCollectors - offsetShards) / portsPerShard
	maxCollectors    = offsetTestbed - offsetCollectors
)

func (c *upConfig) register(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` whose contexts are watched (default $KUBECONFIG; with neither, a testbed of real clusters is started)")
	f.StringArrayVar(&c.contexts, "context", nil, "watch only this `CONTEXT` of the kubeconfig; repeat for several (default all)")
	f.StringVar(&c.dataDir, "data-dir", ".fleetwatch", "keep all data under `DIR`; the next start goes on with it")
	f.StringVar(&c.binDir, "bin-dir", "", "find thanos and testbed in `DIR` (default: beside this program, then $PATH)")
	f.StringVar(&c.logLevel, "log-level", "warn", "debug, info, warn or error; goes to logs/ in the data directory")
	f.StringVar(&c.address, "address", "127.0.0.1", "listen on this `IP`; nothing asks for a password, so keep it on loopback")
	f.IntVar(&c.portBase, "port-base", 9700, "first `PORT`: Fleetwatch +0, Thanos Query +1, shards +10 and up, collectors +100 and up, testbed +400 and up")
	f.IntVar(&c.ports.fleetwatch, "http-port", 0, "`PORT` of Fleetwatch itself (default port base)")
	f.IntVar(&c.ports.query, "query-port", 0, "HTTP `PORT` of Thanos Query (default port base + 1)")
	f.IntVar(&c.ports.queryGRPC, "query-grpc-port", 0, "gRPC `PORT` of Thanos Query (default port base + 3)")
	f.IntVar(&c.ports.shards, "shard-port-base", 0, "first `PORT` of the shards, three for each (default port base + 10)")
	f.IntVar(&c.ports.collectors, "collector-port-base", 0, "first `PORT` of the collectors, one for each cluster (default port base + 100)")
	f.IntVar(&c.ports.testbed, "testbed-port-base", 0, "first `PORT` of the testbed (default port base + 400)")
	f.IntVar(&c.shards, "shards", 2, "`NUMBER` of shards")
	f.Int64Var(&c.shardCapacity, "shard-capacity", 75_000, "head `SERIES` that one shard shall hold at most; small here so that placement can be seen")
	f.DurationVar(&c.shardRetention, "retention", 24*time.Hour, "keep metrics for this `TIME`")
	f.DurationVar(&c.scrapeInterval, "scrape-interval", 15*time.Second, "`TIME` between two scrapes of a target")
	f.DurationVar(&c.scrapeTimeout, "scrape-timeout", 10*time.Second, "`TIME` that one scrape may take; never longer than the interval")
	f.StringArrayVar(&c.scrapeConfigs, "scrape-config", nil, "`FILE` with more scrape_configs in Prometheus syntax, for every cluster; repeat for several")
	f.DurationVar(&c.cycle, "cycle", 5*time.Second, "`TIME` between two rounds of the sharder")
	f.DurationVar(&c.eventRetention, "event-retention", 30*24*time.Hour, "keep events for this `TIME`")
	f.DurationVar(&c.inspectInterval, "inspect-interval", 2*time.Minute, "`TIME` between two inspections; a cluster that comes or goes is inspected at once")
	f.IntVar(&c.testbedClusters, "testbed-clusters", 2, "`NUMBER` of clusters when the testbed is started")
	f.IntVar(&c.testbedNodes, "testbed-nodes", 50, "`NUMBER` of simulated nodes in each cluster of the testbed")
}

// complete fills in what depends on other settings and checks everything; all
// that is wrong is reported at once.
func (c *upConfig) complete() error {
	if c.kubeconfig == "" {
		c.kubeconfig = os.Getenv("KUBECONFIG")
	}
	dir, err := filepath.Abs(c.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir %s: %w", c.dataDir, err)
	}
	c.dataDir = dir
	for port, offset := range map[*int]int{
		&c.ports.fleetwatch: 0, &c.ports.query: offsetQuery, &c.ports.queryGRPC: offsetQueryGRPC,
		&c.ports.shards: offsetShards, &c.ports.collectors: offsetCollectors, &c.ports.testbed: offsetTestbed,
	} {
		if *port == 0 {
			*port = c.portBase + offset
		}
	}
	c.scrapeTimeout = min(c.scrapeTimeout, c.scrapeInterval)
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.kubeconfig != "" || len(c.contexts) == 0, "--context needs a kubeconfig: give --kubeconfig FILE or set KUBECONFIG")
	check(c.portBase > 0 && c.portBase+offsetTestbed+100*c.testbedClusters < 65536, "--port-base %d: want a port that leaves room for %d more below 65536", c.portBase, offsetTestbed+100*c.testbedClusters)
	check(net.ParseIP(c.address) != nil, "--address %q: want an IP address such as 127.0.0.1", c.address)
	check(c.shards >= 1 && c.shards <= maxShards, "--shards %d: want 1 to %d on one machine", c.shards, maxShards)
	check(c.shardCapacity >= 1000, "--shard-capacity %d: want at least 1000 series", c.shardCapacity)
	check(c.scrapeInterval >= time.Second, "--scrape-interval %s: want at least 1s", c.scrapeInterval)
	check(c.scrapeTimeout > 0, "--scrape-timeout %s: want more than 0", c.scrapeTimeout)
	check(c.cycle >= time.Second, "--cycle %s: want at least 1s", c.cycle)
	check(c.shardRetention >= time.Hour, "--retention %s: want at least 1h", c.shardRetention)
	check(c.eventRetention >= 24*time.Hour, "--event-retention %s: want at least 24h", c.eventRetention)
	check(c.inspectInterval >= 10*time.Second, "--inspect-interval %s: want at least 10s", c.inspectInterval)
	check(c.testbedClusters >= 1 && c.testbedClusters <= 20, "--testbed-clusters %d: want 1 to 20", c.testbedClusters)
	check(c.testbedNodes >= 1 && c.testbedNodes <= 1000, "--testbed-nodes %d: want 1 to 1000", c.testbedNodes)
	return errors.Join(append(errs, collector.CheckConfigs(c.scrapeConfigs))...)
}

// clusters reads the kubeconfig; the testbed's when none was given.
func (c *upConfig) clusters(kubeconfig string) ([]fleet.Cluster, error) {
	clusters, err := fleet.FromKubeconfig(kubeconfig, c.contexts)
	if err != nil {
		return nil, err
	}
	if len(clusters) > maxCollectors {
		return nil, fmt.Errorf("kubeconfig %s has %d contexts; on one machine %d can be watched: choose with --context", kubeconfig, len(clusters), maxCollectors)
	}
	return clusters, nil
}

func (c *upConfig) hostPort(port int) string {
	return net.JoinHostPort(c.address, strconv.Itoa(port))
}
func (c *upConfig) url(port int) string { return "http://" + c.hostPort(port) }

func (c *upConfig) shardPort(i int) int     { return c.ports.shards + i*portsPerShard }
func (c *upConfig) sidecarHTTP(i int) int   { return c.shardPort(i) + 1 }
func (c *upConfig) sidecarGRPC(i int) int   { return c.shardPort(i) + 2 }
func (c *upConfig) collectorPort(i int) int { return c.ports.collectors + i }

func shardName(i int) string { return "shard-" + strconv.Itoa(i) }
