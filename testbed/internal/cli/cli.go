// Package cli is the command line of testbed, apart from the stock programs
// that it can be run as. Each command is in a file of its own.
package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Run runs a command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintf(stderr, "testbed: %v\n", err)
		return 1
	}
	return 0
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
