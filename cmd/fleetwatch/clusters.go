package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/fleet"
)

func newClustersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "Show the clusters of the fleet",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newClustersListCommand())
	return cmd
}

func newClustersListCommand() *cobra.Command {
	var server, kubeconfig string
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters with version, nodes and state",
		Long: `List the clusters with version, nodes and state.

A running Fleetwatch is asked; with --kubeconfig the clusters themselves are
asked, whether or not a Fleetwatch runs. STATUS is ready, degraded (it answers,
but refuses something), unreachable, misconfigured (the kubeconfig context
cannot be used) or pending; -o wide says why.`,
		Example: `  fleetwatch clusters list
  fleetwatch clusters list -o wide
  fleetwatch clusters list --kubeconfig ~/.kube/config -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interactive(cmd.Context(), func(ctx context.Context) error {
				if kubeconfig != "" {
					return lookAtClusters(ctx, kubeconfig, format, cmd.OutOrStdout())
				}
				var clusters list[clusterItem]
				if err := getJSON(ctx, server, "/api/v1/clusters", &clusters); err != nil {
					return err
				}
				return format.print(cmd.OutOrStdout(), clusters, func(wide bool) [][]string { return clusterTable(clusters.Items, wide, true) })
			})
		},
	}
	serverFlag(cmd, &server)
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "ask the clusters of this kubeconfig `FILE` directly")
	cmd.MarkFlagsMutuallyExclusive("server", "kubeconfig")
	return cmd
}

// lookAtClusters asks every cluster at once; one that does not answer is listed
// as unreachable after five seconds.
func lookAtClusters(ctx context.Context, kubeconfig string, format outputFormat, out io.Writer) error {
	clusters, err := fleet.FromKubeconfig(kubeconfig, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	items := make([]clusterItem, len(clusters))
	var wg sync.WaitGroup
	for i, c := range clusters {
		wg.Go(func() {
			items[i] = clusterItem{
				ID: c.ID, Alias: c.Alias, Environment: c.Environment, Server: c.Server,
				Status: fleet.Look(ctx, c, fleet.Status{State: fleet.StatePending, Nodes: -1}, time.Now()),
			}
		})
	}
	wg.Wait()
	return format.print(out, list[clusterItem]{items}, func(wide bool) [][]string { return clusterTable(items, wide, false) })
}

// clusterTable has the targets' column only where there is a Fleetwatch to know.
func clusterTable(items []clusterItem, wide, targets bool) [][]string {
	header := []string{"ID", "ALIAS", "ENVIRONMENT", "VERSION", "NODES", "STATUS"}
	if wide {
		if targets {
			header = append(header, "TARGETS UP")
		}
		header = append(header, "SINCE", "SERVER", "REASON")
	}
	rows := [][]string{header}
	for _, c := range items {
		row := []string{c.ID, c.Alias, orDash(c.Environment), orDash(c.Status.Version), countOrDash(c.Status.Nodes), string(c.Status.State)}
		if wide {
			if targets {
				row = append(row, upOf(c.TargetsUp, c.TargetsExpected))
			}
			row = append(row, c.Status.Since.Local().Format(time.DateTime), c.Server, orDash(strings.TrimSpace(c.Status.Reason)))
		}
		rows = append(rows, row)
	}
	return rows
}
