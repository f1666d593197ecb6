package fleet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// State says whether a cluster can be used.
type State string

const (
	// StatePending: not asked yet.
	StatePending State = "pending"
	// StateReady: the API server answers and lets us read nodes.
	StateReady State = "ready"
	// StateDegraded: the API server answers, but not all that we need.
	StateDegraded State = "degraded"
	// StateUnreachable: the API server does not answer.
	StateUnreachable State = "unreachable"
	// StateMisconfigured: the kubeconfig context cannot be used.
	StateMisconfigured State = "misconfigured"
)

// Status is what the last look at a cluster found.
type Status struct {
	State State `json:"state"`
	// Reason explains every state but ready and pending in one line.
	Reason string `json:"reason,omitempty"`
	// Version is the API server's git version, empty until known; kept while
	// the cluster is away.
	Version string `json:"version,omitempty"`
	// Nodes is the number of Node objects, -1 until known; kept while the
	// cluster is away.
	Nodes int64 `json:"nodes"`
	// Since is when State was entered, CheckedAt when it was last confirmed.
	Since     time.Time `json:"since"`
	CheckedAt time.Time `json:"checked_at"`
}

// Look asks the cluster for its version and node count. previous supplies what
// an absent cluster cannot tell. It takes as long as ctx allows at most.
func Look(ctx context.Context, c Cluster, previous Status, now time.Time) Status {
	next := previous
	next.State, next.Reason = look(ctx, c, &next)
	next.CheckedAt = now
	if next.State != previous.State || previous.Since.IsZero() {
		next.Since = now
	}
	return next
}

func look(ctx context.Context, c Cluster, s *Status) (State, string) {
	rc, err := c.RESTConfig()
	if err != nil {
		return StateMisconfigured, err.Error()
	}
	bound(rc, c.ID, maxLookAnswer)
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return StateMisconfigured, err.Error()
	}
	version, err := client.Discovery().ServerVersionWithContext(ctx)
	if err != nil {
		return stateOf(err), Explain(c.Server, err)
	}
	s.Version = version.GitVersion
	// One item and the count of the rest: the answer stays small at any size.
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		state := stateOf(err)
		if state != StateUnreachable {
			state = StateDegraded
		}
		return state, Explain(c.Server, err)
	}
	s.Nodes = int64(len(nodes.Items))
	if nodes.RemainingItemCount != nil {
		s.Nodes += *nodes.RemainingItemCount
	}
	return StateReady, ""
}

func stateOf(err error) State {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return StateDegraded
	}
	return StateUnreachable
}

// Explain puts the error of a request to an API server into one line for
// people: what happened, where, and what to look at.
func Explain(server string, err error) string {
	host := server
	if u, parseErr := url.Parse(server); parseErr == nil && u.Host != "" {
		host = u.Host
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the name %s does not resolve", dns.Name)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return host + " shows a certificate that the kubeconfig's CA did not sign"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return fmt.Sprintf("the certificate of %s is not valid: %v", host, invalid)
	}
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused by " + host + "; is the API server running?"
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		return "no answer from " + host + " in time"
	case apierrors.IsUnauthorized(err):
		return host + " does not accept the kubeconfig's credentials (401)"
	case apierrors.IsForbidden(err):
		return "not allowed (403): " + firstLine(err)
	case apierrors.IsNotFound(err):
		return host + " answers, but is no Kubernetes API server (404); check the server of the kubeconfig's cluster"
	case apierrors.IsTooManyRequests(err):
		return host + " is overloaded and turns requests away (429)"
	}
	return host + ": " + firstLine(err)
}
