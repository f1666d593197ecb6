package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/bed"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

const defaultDir = ".testbed"

func newUp() *cobra.Command {
	o := layout.Options{}
	var binDir string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run clusters until Ctrl-C",
		Long: `Run clusters in the foreground until SIGINT or SIGTERM.

When all clusters are ready it prints a line with "ready" and then the path of
the kubeconfig, which has a context for each cluster, named a, b, c and so on.
The data stays in --dir: the next start goes on with it. Set KUBEBUILDER_ASSETS
to run the etcd and kube-apiserver found there.

The members of etcd are fixed when --dir is first used; with three of them
--port-base is too.`,
		Example: `  testbed up --clusters 2 --nodes 50
  testbed up --dir lab --port-base 20100 --broken=false
  testbed up --clusters 1 --nodes 10 --etcd-members 3 --apiservers 2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runUp(ctx, cmd, o, binDir)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", defaultDir, "directory of the testbed's data")
	f.IntVar(&o.Clusters, "clusters", 2, "number of clusters")
	f.IntVar(&o.Nodes, "nodes", 50, "simulated worker nodes in each cluster")
	f.IntVar(&o.EtcdMembers, "etcd-members", 1, "etcd members of each cluster: 1 or 3")
	f.IntVar(&o.APIServers, "apiservers", 1, "API servers of each cluster: 1 or 2")
	f.IntVar(&o.PortBase, "port-base", layout.DefaultBase, "first port; each cluster takes 100 from here")
	f.BoolVar(&o.Broken, "broken", true, "create a workload that never gets ready")
	f.IntVar(&o.AppSeries, "app-series", 100, "series of the demo application's known counter")
	f.StringVar(&binDir, "bin-dir", "", "directory of kwok and kube-state-metrics (default: where testbed is)")
	return cmd
}

func runUp(ctx context.Context, cmd *cobra.Command, o layout.Options, binDir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if binDir == "" {
		binDir = filepath.Dir(self)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	binaries, err := bed.FindBinaries(self, binDir, os.Getenv("KUBEBUILDER_ASSETS"))
	if err != nil {
		return err
	}
	return bed.Run(ctx, bed.Config{Options: o, Binaries: binaries, Out: cmd.OutOrStdout()})
}

func newDown() *cobra.Command {
	var dir string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the testbed that runs in --dir and wait until it has gone",
		Example: `  testbed down
  testbed down --dir lab --timeout 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := state.Down(dir, patience); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "stopped; its data stays in "+dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "directory of the testbed's data")
	cmd.Flags().DurationVar(&patience, "timeout", time.Minute, "how long to wait")
	return cmd
}
