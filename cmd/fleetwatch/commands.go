package main

import "github.com/spf13/cobra"

// commands lists every subcommand in the order in which the help shows them.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newUpCommand(),
		newClustersCommand(),
		newTargetsCommand(),
		newShardsCommand(),
		newEventsCommand(),
		newInspectCommand(),
		newCollectorCommand(),
		newShardCommand(),
	}
}
