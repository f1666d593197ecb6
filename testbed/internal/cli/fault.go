package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/fault"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

const (
	faultTimeout = 30 * time.Second
	listTimeout  = 3 * time.Second
)

// faultFlags say where a fault goes.
type faultFlags struct{ dir, cluster, node, name string }

func (f *faultFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", defaultDir, "directory of the testbed's data")
	cmd.Flags().StringVar(&f.cluster, "cluster", "a", "cluster to break or mend")
	cmd.Flags().StringVar(&f.node, "node", "", "node, for faults that concern one")
	cmd.Flags().StringVar(&f.name, "name", "", "name of the object, for faults that make one")
}

func newFault() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fault", Short: "Break a running testbed in a named way, and mend it",
		Example: `  testbed fault list
  testbed fault inject scheduler-down --cluster b
  testbed fault clear scheduler-down --cluster b`,
	}
	cmd.AddCommand(newFaultList(), newFaultChange("inject"), newFaultChange("clear"))
	return cmd
}

func newFaultChange(verb string) *cobra.Command {
	var flags faultFlags
	cmd := &cobra.Command{
		Use: verb + " NAME", Args: cobra.ExactArgs(1),
		Short: map[string]string{"inject": "Bring a fault about; again does no harm", "clear": "Take a fault away; again does no harm"}[verb],
		Example: map[string]string{
			"inject": `  testbed fault inject apiserver-down
  testbed fault inject node-heartbeat --cluster b --node b-worker-007
  testbed fault inject crash-loop --name second`,
			"clear": `  testbed fault clear apiserver-down
  testbed fault clear node-heartbeat --cluster b
  testbed fault clear crash-loop --name second`,
		}[verb],
		RunE: func(cmd *cobra.Command, args []string) error {
			one, err := fault.Find(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), faultTimeout)
			defer cancel()
			target, err := flags.target()
			if err != nil {
				return err
			}
			do := one.Inject
			if verb == "clear" {
				do = one.Clear
			}
			did, err := do(ctx, target)
			if err != nil {
				return fmt.Errorf("%s fault %s in cluster %s: %w", verb, one.Name, flags.cluster, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %s\n", flags.cluster, did)
			if verb == "inject" {
				fmt.Fprintf(cmd.OutOrStdout(), "expect: %s\n", one.Expect)
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}

func (f *faultFlags) target() (fault.Target, error) {
	s, err := state.Read(f.dir)
	if err != nil {
		return fault.Target{}, err
	}
	clusters := s.Options.ClusterList()
	i := slices.IndexFunc(clusters, func(c layout.Cluster) bool { return c.Name == f.cluster })
	if i < 0 {
		var names []string
		for _, c := range clusters {
			names = append(names, c.Name)
		}
		return fault.Target{}, fmt.Errorf("--cluster is %q: the testbed has %s", f.cluster, strings.Join(names, ", "))
	}
	config, err := clientcmd.BuildConfigFromFlags("", clusters[i].ClientConfig("admin"))
	if err != nil {
		return fault.Target{}, err
	}
	config.Timeout = faultTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fault.Target{}, err
	}
	return fault.Target{Cluster: clusters[i], Client: client, Node: f.node, Name: f.name}, nil
}

func newFaultList() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "list", Args: cobra.NoArgs,
		Short: "Show the faults there are and those in effect",
		Example: `  testbed fault list
  testbed fault list --dir lab`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := state.Read(dir)
			if err != nil && !errors.Is(err, state.ErrNotRunning) {
				return err
			}
			running := err == nil
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tIN EFFECT\tWHAT IT DOES")
			for _, one := range fault.All() {
				effect := "-"
				if running {
					effect = inEffect(cmd.Context(), one, dir, s.Options)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", one.Name, effect, one.Summary)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "directory of the testbed's data")
	return cmd
}

// inEffect says in which clusters a fault is in effect, and on what.
func inEffect(ctx context.Context, one fault.Fault, dir string, o layout.Options) string {
	var out []string
	for _, c := range o.ClusterList() {
		f := faultFlags{dir: dir, cluster: c.Name}
		target, err := f.target()
		if err != nil {
			return "unknown: " + err.Error()
		}
		one1, cancel := context.WithTimeout(ctx, listTimeout)
		what, err := one.Active(one1, target)
		cancel()
		switch {
		case err != nil:
			out = append(out, c.Name+": unknown, the cluster does not answer")
		case what != "":
			out = append(out, c.Name+": "+what)
		}
	}
	if len(out) == 0 {
		return "no"
	}
	return strings.Join(out, "; ")
}
