package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/app"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/kubelet"
)

// newKubelet is the child process that stands in for a cluster's kubelets.
func newKubelet() *cobra.Command {
	c := kubelet.Config{}
	var kubeconfig string
	cmd := &cobra.Command{
		Use: "kubelet", Short: "Stand in for the kubelets of a cluster (started by up)",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			var err error
			if c.Client, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
				return err
			}
			c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
			klog.SetSlogLogger(c.Logger)
			return kubelet.Run(ctx, c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the kubelets")
	f.StringVar(&c.ClientCA, "client-ca-file", "", "authority of client certificates")
	f.StringVar(&c.CertDir, "cert-dir", "", "directory of the nodes' certificates")
	f.StringVar(&c.KWOK, "kwok", "", "URL of KWOK's server")
	f.IntVar(&c.Port, "port", 10250, "port on every node's address")
	f.StringVar(&c.Health, "health", "127.0.0.1:10248", "address of the health page")
	return cmd
}

// newApp is the child process with metrics of known truth.
func newApp() *cobra.Command {
	c := app.Config{}
	cmd := &cobra.Command{
		Use: "app", Short: "Serve metrics whose truth is known (started by up)",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return app.Run(ctx, c)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Listen, "listen", []string{"127.0.0.1:8080"}, "addresses to serve")
	f.IntVar(&c.Series, "series", 100, "series of the known counter")
	f.Float64Var(&c.Rate, "rate", 5, "growth of each series in a second")
	return cmd
}
