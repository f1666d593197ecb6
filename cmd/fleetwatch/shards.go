package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/sharder"
)

func newShardsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shards",
		Short: "Show the shards and how full they are",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newShardsListCommand())
	return cmd
}

func newShardsListCommand() *cobra.Command {
	var server string
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the shards with series, capacity and targets",
		Long: `List the shards with series, capacity and targets.

SERIES is what the shard's head holds, WEIGHT what its targets are expected to
cost, FILL the weight as a part of the capacity.`,
		Example: `  fleetwatch shards list
  fleetwatch shards list -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interactive(cmd.Context(), func(ctx context.Context) error {
				var shards list[sharder.ShardView]
				if err := getJSON(ctx, server, "/api/v1/shards", &shards); err != nil {
					return err
				}
				return format.print(cmd.OutOrStdout(), shards, func(wide bool) [][]string { return shardTable(shards.Items, wide) })
			})
		},
	}
	serverFlag(cmd, &server)
	outputFlag(cmd, &format)
	return cmd
}

func shardTable(items []sharder.ShardView, wide bool) [][]string {
	header := []string{"NAME", "STATUS", "SERIES", "WEIGHT", "CAPACITY", "FILL", "TARGETS"}
	if wide {
		header = append(header, "IN FORCE", "LAST SEEN", "URL", "ERROR")
	}
	rows := [][]string{header}
	for _, s := range items {
		row := []string{s.Name, shardState(s), strconv.FormatInt(s.HeadSeries, 10), strconv.FormatInt(s.Weight, 10), strconv.FormatInt(s.Capacity, 10), fmt.Sprintf("%.0f%%", 100*s.Fill), strconv.Itoa(s.Targets)}
		if wide {
			seen := "-"
			if !s.LastSeen.IsZero() {
				seen = s.LastSeen.Local().Format(time.TimeOnly)
			}
			row = append(row, strconv.FormatBool(s.InForce), seen, s.URL, orDash(s.LastError))
		}
		rows = append(rows, row)
	}
	return rows
}

// shardState is a shard's state in a word.
func shardState(s sharder.ShardView) string {
	switch {
	case !s.Up:
		return "down"
	case s.Overfull:
		return "overfull"
	}
	return "up"
}

func upOf(up, expected int) string { return fmt.Sprintf("%d/%d", up, expected) }
