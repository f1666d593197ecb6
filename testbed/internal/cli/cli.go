// Package cli is the command line of testbed, apart from the stock programs
// that it can be run as. Each command is in a file of its own.
package cli

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
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
	// The stock programs' libraries register flags of their own in this set,
	// which cobra adds to every command. None of them means anything here.
	pflag.CommandLine = pflag.NewFlagSet("testbed", pflag.ContinueOnError)
	root := &cobra.Command{
		Use:   "testbed",
		Short: "Run real Kubernetes clusters on this machine, for Fleetwatch to watch",
		Long: `Testbed runs real Kubernetes clusters on this machine, without containers.

Each cluster is a real etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and kube-state-metrics; its nodes and most pods are simulated
by KWOK. Everything listens on loopback addresses only. 'testbed up' stays in
the foreground; the other commands work from another shell, by its --dir.`,
		Example: `  testbed up --clusters 2 --nodes 50
  testbed status
  testbed fault inject node-heartbeat --cluster b
  testbed down`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("testbed {{.Version}}\n")
	root.AddCommand(newUp(), newStatus(), newDown(), newFault(), newKubelet(), newApp())
	return root
}

// version is the build's own version and that of the clusters it makes.
func version() string {
	own := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		own = info.Main.Version
	}
	return own + ", Kubernetes " + content.KubernetesVersion
}
