// Command testbed runs real Kubernetes clusters on one machine, without
// containers: etcd, the control plane, simulated nodes, and faults on demand.
package main

import (
	"os"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/cli"
	"github.com/fleetwatch-io/fleetwatch/testbed/kube"
)

func main() {
	// The stock programs parse their own command lines and never return.
	if len(os.Args) > 1 {
		kube.Main(os.Args[1], os.Args[2:])
	}
	os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr))
}
