package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// gate admits callers as a kubelet with webhook authentication and
// authorisation does, with a kubelet's default caches and no anonymous access.
type gate struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	ca            dynamiccertificates.CAContentProvider
}

const (
	tokenCache    = 2 * time.Minute
	allowCache    = 5 * time.Minute
	denyCache     = 5 * time.Second
	reviewTimeout = 5 * time.Second
)

func newGate(client kubernetes.Interface, caFile string) (*gate, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", caFile)
	if err != nil {
		return nil, fmt.Errorf("read client CA %s: %w", caFile, err)
	}
	retry := &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: false},
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                retry,
		CacheTTL:                           tokenCache,
		ClientCertificateCAContentProvider: ca,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authenticator: %w", err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             allowCache,
		DenyCacheTTL:              denyCache,
		WebhookRetryBackoff:       retry,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authorizer: %w", err)
	}
	return &gate{authenticator: authn, authorizer: authz, ca: ca}, nil
}

// tlsConfig asks for a client certificate and takes only the cluster's.
func (g *gate) tlsConfig(cert tls.Certificate) *tls.Config {
	options, _ := g.ca.VerifyOptions()
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequestClientCert, // verified by the authenticator, so that a foreign one gets 401
		ClientCAs:    options.Roots,
	}
}

// guard lets a request through to next if its caller may read the node.
func (g *gate) guard(node string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*reviewTimeout)
		defer cancel()
		who, ok, err := g.authenticator.AuthenticateRequest(r.WithContext(ctx))
		if err != nil || !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		allowed, err := g.allowed(ctx, node, who.User, r)
		if err != nil {
			http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes): %v", who.User.GetName(), verb(r.Method), err), http.StatusInternalServerError)
			return
		}
		if !allowed {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", who.User.GetName(), verb(r.Method), subresources(r.URL.Path)), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *gate) allowed(ctx context.Context, node string, who user.Info, r *http.Request) (bool, error) {
	for _, sub := range subresources(r.URL.Path) {
		decision, _, err := g.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: verb(r.Method), APIVersion: "v1", Resource: "nodes", Subresource: sub,
			Name: node, ResourceRequest: true, Path: r.URL.Path,
		})
		if err != nil {
			return false, err
		}
		if decision == authorizer.DecisionAllow {
			return true, nil
		}
	}
	return false, nil
}

// subresources of a node that a path stands for: any one of them suffices.
func subresources(path string) []string {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); first {
	case "metrics", "stats":
		return []string{first}
	case "healthz", "pods":
		return []string{first, "proxy"}
	}
	return []string{"proxy"}
}

func verb(method string) string {
	switch method {
	case http.MethodGet:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}
