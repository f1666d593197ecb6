package collector

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"time"

	promconfig "github.com/prometheus/common/config"
	"k8s.io/client-go/rest"
)

// A job that names these files means, as it does for a Prometheus that runs in
// the cluster, "the identity that I run under" and "the CA of my cluster". The
// collector puts the identity of its own client configuration in their place,
// so that genuine scrape_configs work wherever the collector runs.
const (
	identityToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	identityCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

const (
	dialTimeout        = 10 * time.Second
	maxResponseHeaders = 64 << 10
)

// declaresIdentity reports whether the job asks for the cluster's credentials.
func declaresIdentity(c promconfig.HTTPClientConfig) bool {
	return c.BearerTokenFile == identityToken ||
		c.Authorization != nil && c.Authorization.CredentialsFile == identityToken
}

func checkIdentity(c promconfig.HTTPClientConfig) error {
	if !declaresIdentity(c) {
		return nil
	}
	if t := c.TLSConfig; t.CertFile != "" || t.Cert != "" || t.CertRef != "" {
		return errors.New("tls_config: a client certificate and the service account token exclude each other; remove one")
	}
	if c.ProxyURL.URL != nil || c.ProxyFromEnvironment {
		return errors.New("a proxy cannot be combined with the service account token")
	}
	return nil
}

// transports makes the round trippers of the jobs. Jobs with the same needs
// share one, so that a connection to a kubelet serves all of its paths.
type transports struct {
	rest    *rest.Config
	idle    time.Duration
	cluster map[clusterTLS]http.RoundTripper
	plain   http.RoundTripper
}

type clusterTLS struct {
	caFile, ca, serverName string
	insecure               bool
}

func newTransports(cfg *rest.Config, idle time.Duration) *transports {
	return &transports{rest: cfg, idle: idle, cluster: map[clusterTLS]http.RoundTripper{}}
}

// roundTrippers are the two ways to a target of one job. identity carries the
// credentials of the cluster and is nil for a job that does not declare them;
// it is used for https only.
type roundTrippers struct {
	plain, identity http.RoundTripper
}

func (r roundTrippers) forScheme(scheme string) http.RoundTripper {
	if scheme == "https" && r.identity != nil {
		return r.identity
	}
	return r.plain
}

func (t *transports) forJob(name string, c promconfig.HTTPClientConfig) (roundTrippers, error) {
	plain, err := t.forPlain(name, c)
	if err != nil {
		return roundTrippers{}, err
	}
	if !declaresIdentity(c) {
		return roundTrippers{plain: plain}, nil
	}
	identity, err := t.forIdentity(c)
	return roundTrippers{plain: plain, identity: identity}, err
}

// forIdentity returns a round tripper with the credentials of the cluster:
// client certificate, token, token file or exec plugin, as client-go knows
// them. HTTP/2 is off: one scrape at a time uses a connection, and HTTP/1
// costs less per byte.
func (t *transports) forIdentity(c promconfig.HTTPClientConfig) (http.RoundTripper, error) {
	key := clusterTLS{caFile: c.TLSConfig.CAFile, ca: c.TLSConfig.CA, serverName: c.TLSConfig.ServerName, insecure: c.TLSConfig.InsecureSkipVerify}
	if rt, ok := t.cluster[key]; ok && c.HTTPHeaders == nil {
		return rt, nil
	}
	cfg := rest.CopyConfig(t.rest)
	cfg.Transport, cfg.Dial = nil, nil
	cfg.ServerName, cfg.NextProtos = key.serverName, []string{"http/1.1"}
	switch {
	case key.insecure:
		cfg.Insecure, cfg.CAFile, cfg.CAData = true, "", nil
	case key.caFile != identityCA:
		cfg.Insecure, cfg.CAFile, cfg.CAData = false, key.caFile, []byte(key.ca)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's credentials: %w", err)
	}
	rt, err := rest.HTTPWrappersForConfig(cfg, t.base(tlsConfig))
	if err != nil {
		return nil, fmt.Errorf("read the cluster's credentials: %w", err)
	}
	if c.HTTPHeaders != nil {
		return promconfig.NewHeadersRoundTripper(c.HTTPHeaders, rt), nil
	}
	t.cluster[key] = rt
	return rt, nil
}

// forPlain returns a round tripper without the credentials of the cluster, and
// with those of the job's own, if it has any.
func (t *transports) forPlain(name string, c promconfig.HTTPClientConfig) (http.RoundTripper, error) {
	if declaresIdentity(c) {
		c.Authorization, c.BearerTokenFile = nil, ""
	}
	if c.TLSConfig.CAFile == identityCA {
		ca, err := t.clusterCA()
		if err != nil {
			return nil, err
		}
		c.TLSConfig.CAFile, c.TLSConfig.CA = "", ca
	}
	tlsOnly := promconfig.HTTPClientConfig{TLSConfig: c.TLSConfig, FollowRedirects: c.FollowRedirects, EnableHTTP2: c.EnableHTTP2}
	if !reflect.DeepEqual(c, tlsOnly) {
		rt, err := promconfig.NewRoundTripperFromConfig(c, name,
			promconfig.WithHTTP2Disabled(), promconfig.WithIdleConnTimeout(t.idle), promconfig.WithDialContextFunc(dialer().DialContext))
		if err != nil {
			return nil, fmt.Errorf("make the HTTP client: %w", err)
		}
		return rt, nil
	}
	standard := reflect.DeepEqual(c.TLSConfig, promconfig.TLSConfig{})
	if standard && t.plain != nil {
		return t.plain, nil
	}
	tlsConfig, err := promconfig.NewTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, fmt.Errorf("tls_config: %w", err)
	}
	rt := t.base(tlsConfig)
	if standard {
		t.plain = rt
	}
	return rt, nil
}

func (t *transports) clusterCA() (string, error) {
	if len(t.rest.CAData) > 0 || t.rest.CAFile == "" {
		return string(t.rest.CAData), nil
	}
	ca, err := os.ReadFile(t.rest.CAFile)
	if err != nil {
		return "", fmt.Errorf("read the cluster's CA: %w", err)
	}
	return string(ca), nil
}

func dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
}

func (t *transports) base(tlsConfig *tls.Config) *http.Transport {
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(2 * maxKeptConnections)
	return &http.Transport{
		Proxy:                  func(*http.Request) (*url.URL, error) { return nil, nil },
		DialContext:            dialer().DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true,
		MaxIdleConns:           2 * maxKeptConnections,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        t.idle,
		MaxResponseHeaderBytes: maxResponseHeaders,
		WriteBufferSize:        1 << 10,
	}
}
