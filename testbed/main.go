// Command testbed runs real Kubernetes clusters on one machine, without
// containers: etcd, the control plane, simulated nodes, and faults on demand.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/testbed/kube"
)

func main() {
	// The stock programs parse their own command lines and never return.
	if len(os.Args) > 1 {
		kube.Main(os.Args[1], os.Args[2:])
	}
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "testbed",
		Short: "Run real Kubernetes clusters on this machine, for Fleetwatch to watch",
		Long: `Testbed runs real Kubernetes clusters on this machine, without containers.

Each cluster is a real etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and kube-state-metrics; its nodes and most pods are simulated
by KWOK. Everything listens on loopback addresses only. 'testbed up' stays in
the foreground; the other commands work from another shell, by its --dir.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newUp(), newStatus(), newDown(), newFault(), newKubelet(), newApp())
	return root
}
