package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/supervise"
)

// programs are the executables that up starts.
type programs struct{ self, thanos, testbed string }

// findPrograms looks for thanos, and for testbed when it is needed, in the
// given directory or beside this program and then in $PATH.
func findPrograms(binDir string, testbed bool) (programs, error) {
	self, err := os.Executable()
	if err != nil {
		return programs{}, fmt.Errorf("find this program: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(self); err == nil {
		self = resolved
	}
	find := func(name string) (string, error) {
		dir := binDir
		if dir == "" {
			dir = filepath.Dir(self)
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
		if binDir == "" {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("the program %s is not in %s; build it with `make build`, or name its directory with --bin-dir", name, dir)
	}
	p := programs{self: self}
	if p.thanos, err = find("thanos"); err != nil {
		return programs{}, err
	}
	if testbed {
		if p.testbed, err = find("testbed"); err != nil {
			return programs{}, err
		}
	}
	return p, nil
}

func (c *upConfig) testbedSpec(p programs, output func(string)) supervise.Spec {
	return supervise.Spec{
		Name: "testbed",
		Path: p.testbed,
		Args: []string{
			"up",
			"--dir", c.testbedDir(),
			"--clusters", strconv.Itoa(c.testbedClusters),
			"--nodes", strconv.Itoa(c.testbedNodes),
			"--port-base", strconv.Itoa(c.ports.testbed),
		},
		StopTimeout: 40 * time.Second,
		Output:      output,
	}
}

func (c *upConfig) testbedDir() string        { return filepath.Join(c.dataDir, "testbed") }
func (c *upConfig) testbedKubeconfig() string { return filepath.Join(c.testbedDir(), "kubeconfig") }

func (c *upConfig) collectorSpec(p programs, i int, cluster fleet.Cluster) supervise.Spec {
	args := []string{
		"collector",
		"--cluster", cluster.ID,
		"--kubeconfig", cluster.Kubeconfig,
		"--context", cluster.Context,
		"--listen", c.hostPort(c.collectorPort(i)),
		"--scrape-interval", c.scrapeInterval.String(),
		"--scrape-timeout", c.scrapeTimeout.String(),
		"--log-level", c.logLevel,
	}
	for _, file := range c.scrapeConfigs {
		args = append(args, "--scrape-config", file)
	}
	return supervise.Spec{Name: "collector-" + cluster.ID, Path: p.self, Args: args}
}

func (c *upConfig) shardSpec(p programs, i int) supervise.Spec {
	return supervise.Spec{
		Name: shardName(i),
		Path: p.self,
		Args: []string{
			"shard",
			"--name", shardName(i),
			"--replica", "0",
			"--data-dir", c.shardDir(i),
			"--listen", c.hostPort(c.shardPort(i)),
			"--retention", c.shardRetention.String(),
			"--log-level", c.logLevel,
		},
		StopTimeout: 30 * time.Second, // the head's last chunks are written
	}
}

func (c *upConfig) shardDir(i int) string { return filepath.Join(c.dataDir, shardName(i)) }

func (c *upConfig) sidecarSpec(p programs, i int) supervise.Spec {
	return supervise.Spec{
		Name: "sidecar-" + strconv.Itoa(i),
		Path: p.thanos,
		Args: []string{
			"sidecar",
			"--prometheus.url", c.url(c.shardPort(i)),
			// How often the sidecar learns what time range the shard covers;
			// until the first time Thanos Query does not ask it.
			"--prometheus.get_config_interval", "2s",
			"--http-address", c.hostPort(c.sidecarHTTP(i)),
			"--grpc-address", c.hostPort(c.sidecarGRPC(i)),
			"--http-grace-period", "1s",
			"--grpc-grace-period", "1s",
			"--log.level", c.logLevel,
		},
	}
}

func (c *upConfig) querySpec(p programs, endpoints string) supervise.Spec {
	return supervise.Spec{
		Name: "query",
		Path: p.thanos,
		Args: []string{
			"query",
			"--http-address", c.hostPort(c.ports.query),
			"--grpc-address", c.hostPort(c.ports.queryGRPC),
			"--http-grace-period", "1s",
			"--grpc-grace-period", "1s",
			// A target that moved has series in two shards; these labels are
			// all that tells them apart.
			"--query.replica-label", "shard",
			"--query.replica-label", "replica",
			"--query.auto-downsampling",
			"--endpoint.sd-config-file", endpoints,
			// A shard that hangs costs a query five seconds and its own part.
			"--store.response-timeout", "5s",
			"--query.timeout", "1m",
			"--log.level", c.logLevel,
		},
	}
}

// writeEndpoints writes the file that tells Thanos Query the sidecars. They are
// strict: one that is away is asked all the same, so that a query says what it
// could not see.
func (c *upConfig) writeEndpoints() (string, error) {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for i := range c.shards {
		fmt.Fprintf(&b, "- address: %s\n  strict: true\n", c.hostPort(c.sidecarGRPC(i)))
	}
	path := filepath.Join(c.dataDir, "query-endpoints.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return "", fmt.Errorf("write the endpoints of Thanos Query: %w; free some space, or choose another --data-dir", err)
	}
	return path, nil
}

// checkPorts finds ports that are in use before anything starts, so that a
// child does not die over and over for want of one.
func (c *upConfig) checkPorts(clusters int) error {
	type use struct {
		port       int
		what, flag string
	}
	uses := []use{
		{c.ports.query, "Thanos Query", "--query-port"},
		{c.ports.queryGRPC, "Thanos Query's gRPC", "--query-grpc-port"},
	}
	for i := range c.shards {
		uses = append(uses,
			use{c.shardPort(i), shardName(i), "--shard-port-base"},
			use{c.sidecarHTTP(i), "the sidecar of " + shardName(i), "--shard-port-base"},
			use{c.sidecarGRPC(i), "the sidecar of " + shardName(i), "--shard-port-base"})
	}
	for i := range clusters {
		uses = append(uses, use{c.collectorPort(i), "a collector", "--collector-port-base"})
	}
	for _, u := range uses {
		l, err := net.Listen("tcp", c.hostPort(u.port)) //nolint:noctx // bound and closed at once
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("port %d of %s is in use; move it with %s, or everything with --port-base", u.port, u.what, u.flag)
		}
		if err != nil {
			return fmt.Errorf("listen on %s for %s: %w", c.hostPort(u.port), u.what, err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("listen on %s for %s: %w", c.hostPort(u.port), u.what, err)
		}
	}
	return nil
}
