// Command fleetwatch watches a fleet of Kubernetes clusters. Each role is a
// subcommand in a file of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fleetwatch-io/fleetwatch/internal/buildinfo"
)

// exitError ends the program with a code other than 1; it prints nothing more.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	fmt.Fprintf(stderr, "fleetwatch: %v\n", err)
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "fleetwatch",
		Short: "Watch a fleet of Kubernetes clusters: metrics, events, inspection",
		Long: `Fleetwatch watches a fleet of Kubernetes clusters at once.

'fleetwatch up' runs everything on this machine; the other commands ask a
running Fleetwatch, or work on a kubeconfig directly.`,
		Version:       buildinfo.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(commands()...)
	return root
}
