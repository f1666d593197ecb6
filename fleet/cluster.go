// Package fleet knows which clusters there are and how to reach each. It hands
// every other package a *rest.Config; nothing else builds one.
//
// What must stay true: a cluster's ID is its `cluster` label value and never
// changes for the same kubeconfig context; one cluster's trouble never hides
// another; a context that cannot be used is a degraded cluster with a reason,
// not a failure of the fleet.
package fleet

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"
)

// Cluster is one Kubernetes API and the way to it.
type Cluster struct {
	// ID is the value of the `cluster` label on everything that comes from
	// this cluster.
	ID string
	// Alias is the name that people use: the kubeconfig context.
	Alias string
	// Environment groups clusters, such as production or testbed; empty when
	// the kubeconfig context does not say.
	Environment string
	// Server is the API server's URL.
	Server string
	// Kubeconfig and Context find the cluster again in another process.
	// Kubeconfig may list several files, separated as in $KUBECONFIG.
	Kubeconfig string
	Context    string

	config *rest.Config
	err    error
}

// RESTConfig returns a fresh copy of the client configuration, or the reason
// why the context cannot be used.
func (c Cluster) RESTConfig() (*rest.Config, error) {
	if c.err != nil {
		return nil, c.err
	}
	return rest.CopyConfig(c.config), nil
}

var validID = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// idOf makes a `cluster` label value of a context name: lower case, every
// other character than a-z, 0-9 and "-" replaced by "-", beginning with a letter.
func idOf(context string) (string, error) {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		default:
			return '-'
		}
	}, context)
	id = strings.Trim(id, "-")
	if id != "" && id[0] >= '0' && id[0] <= '9' {
		id = "c-" + id
	}
	if !validID.MatchString(id) {
		return "", fmt.Errorf("context %q has no letter or digit to make a cluster ID of; rename it with kubectl config rename-context", context)
	}
	return id, nil
}
