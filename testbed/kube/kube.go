// Package kube runs the stock programs of a Kubernetes control plane inside
// the testbed binary: each program is one process that re-executes the binary
// with the program's name as its first argument.
package kube

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the stock programs have them
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Programs are the names that Main knows.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

// Main runs the named program with its arguments and reports false when the
// name is none of the control plane's. It does not return once the program runs.
func Main(name string, args []string) bool {
	if name == "etcd" {
		etcdmain.Main(append([]string{name}, args...))
		os.Exit(0)
	}
	command, ok := programs[name]
	if !ok {
		return false
	}
	cmd := command()
	cmd.SetArgs(args)
	os.Exit(cli.Run(cmd))
	return true
}
