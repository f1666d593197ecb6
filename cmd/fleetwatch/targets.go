package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/sharder"
)

func newTargetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "Show what is scraped, by which shard, and move it",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newTargetsListCommand(), newTargetsMoveCommand())
	return cmd
}

func newTargetsListCommand() *cobra.Command {
	var server string
	var format outputFormat
	filters := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List targets with their shard, weight and health",
		Long: `List targets with their shard, weight (head series) and health.

-o wide adds why the target is on its shard and what its last scrape said.`,
		Example: `  fleetwatch targets list
  fleetwatch targets list --health down -o wide
  fleetwatch targets list --cluster prod-eu --job kubelet --shard shard-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interactive(cmd.Context(), func(ctx context.Context) error {
				query := url.Values{}
				for name, value := range filters {
					if cmd.Flags().Changed(name) {
						query.Set(name, *value)
					}
				}
				var targets list[sharder.TargetView]
				if err := getJSON(ctx, server, "/api/v1/targets?"+query.Encode(), &targets); err != nil {
					return err
				}
				if len(targets.Items) == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "no targets match")
				}
				return format.print(cmd.OutOrStdout(), targets, func(wide bool) [][]string { return targetTable(targets.Items, wide) })
			})
		},
	}
	serverFlag(cmd, &server)
	outputFlag(cmd, &format)
	for name, help := range map[string]string{
		"cluster": "only targets of this `CLUSTER`",
		"job":     "only targets of this `JOB`",
		"shard":   "only targets on this `SHARD`",
		"state":   "only targets in this `STATE` of placement: assigned, unassigned or moving",
		"health":  "only targets of this `HEALTH`: up, down or unknown",
	} {
		filters[name] = cmd.Flags().String(name, "", help)
	}
	return cmd
}

func targetTable(items []sharder.TargetView, wide bool) [][]string {
	header := []string{"ID", "CLUSTER", "JOB", "INSTANCE", "SHARD", "STATE", "HEALTH", "WEIGHT"}
	if wide {
		header = append(header, "FROM", "LAST SCRAPE", "ADDRESS", "WHY THERE", "ERROR")
	}
	rows := [][]string{header}
	for _, t := range items {
		row := []string{t.ID, t.Cluster, t.Job, t.Labels["instance"], orDash(t.Shard), t.State, t.Health, strconv.FormatInt(t.Weight, 10)}
		if wide {
			last := "-"
			if !t.LastScrape.IsZero() {
				last = t.LastScrape.Local().Format(time.TimeOnly)
			}
			row = append(row, orDash(t.WeightFrom), last, t.Address, orDash(t.Reason), orDash(t.LastError))
		}
		rows = append(rows, row)
	}
	return rows
}

func newTargetsMoveCommand() *cobra.Command {
	var server, to string
	cmd := &cobra.Command{
		Use:   "move ID --to SHARD",
		Short: "Hand a target over to another shard and keep it there for a day",
		Long: `Hand a target over to another shard and keep it there for a day.

The command returns once the new shard scrapes the target. Queries show no hole.
'fleetwatch targets list' shows the IDs, 'fleetwatch shards list' the shards.`,
		Example: `  fleetwatch targets move 1f3a9c0d5e7b2468 --to shard-1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return interactive(cmd.Context(), func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, moveTimeout+10*time.Second)
				defer cancel()
				resp, err := request(ctx, http.MethodPost, server, "/api/v1/targets/"+url.PathEscape(args[0])+"/move?shard="+url.QueryEscape(to))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				var answer moved
				if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
					return fmt.Errorf("read the answer of %s: %w", server, err)
				}
				note := ""
				if answer.Already {
					note = "; it was there already and stays for a day"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "target %s is on %s%s\n", args[0], to, note)
				return err
			})
		},
	}
	serverFlag(cmd, &server)
	cmd.Flags().StringVar(&to, "to", "", "`SHARD` that shall scrape the target")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is three lines up
	}
	return cmd
}
