package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

func newStatus() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the processes of the testbed that runs in --dir, and their ports",
		Example: `  testbed status
  testbed status --dir lab -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := state.Read(dir)
			if err != nil {
				return err
			}
			switch output {
			case "table":
				return writeStatus(cmd.OutOrStdout(), s, time.Now())
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(s)
			}
			return fmt.Errorf("-o is %q: want table or json", output)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "directory of the testbed's data")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func writeStatus(out io.Writer, s state.Status, now time.Time) error {
	ready := "starting"
	if s.Ready {
		ready = "ready"
	}
	fmt.Fprintf(out, "testbed %s: pid %d, up %s, kubeconfig %s\n\n", ready, s.PID, now.Sub(s.Started).Round(time.Second), s.Kubeconfig)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tPROCESS\tSTATE\tPID\tRSS MiB\tRESTARTS\tENDPOINT\tLAST EXIT")
	total := int64(0)
	for _, c := range s.Clusters {
		for _, p := range c.Processes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", c.Name, p.Name, p.Phase, p.PID, p.RSS>>20, p.Restarts, p.Endpoint, p.LastExit)
			total += p.RSS
		}
	}
	fmt.Fprintf(w, "\t\t\t\t%d\t\t\t\n", total>>20)
	return w.Flush()
}
