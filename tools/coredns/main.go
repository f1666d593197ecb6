// Command coredns is CoreDNS with the plugins of a kubeadm cluster and no
// others: the stock program links the SDK of every cloud, this one builds in a
// minute. The plugins' order in a query is CoreDNS' own.
package main

import (
	"github.com/coredns/coredns/coremain"

	// The plugins of kubeadm's Corefile, without those that forward queries to
	// the outside, where there is nothing.
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	// Where to listen, since a cluster here has no address of its own.
	_ "github.com/coredns/coredns/plugin/bind"
)

func main() { coremain.Run() }
