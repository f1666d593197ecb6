package collector_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetwatch-io/fleetwatch/collector"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// snoop is a TLS server that remembers what each path was shown.
type snoop struct {
	*httptest.Server
	host, port string

	mu   sync.Mutex
	seen map[string]string // path -> credential, "" for none
}

func newSnoop(t *testing.T, plain bool) *snoop {
	t.Helper()
	s := &snoop{seen: map[string]string{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var credential strings.Builder
		credential.WriteString(r.Header.Get("Authorization") + r.Header.Get("Cookie"))
		if r.TLS != nil {
			for _, c := range r.TLS.PeerCertificates {
				credential.WriteString("certificate of " + c.Subject.CommonName)
			}
		}
		s.mu.Lock()
		s.seen[r.URL.Path] = credential.String()
		s.mu.Unlock()
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/after-redirect", http.StatusFound)
			return
		}
		fmt.Fprintln(w, "up 1")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	if plain {
		s.Start()
	} else {
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	s.host, s.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return s
}

func (s *snoop) credentials() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seen)
}

func controlPlanePod(component, ip, port string) *corev1.Pod {
	p := annotatedPod(component, ip, port, nil)
	p.Annotations = map[string]string{"kubernetes.io/config.mirror": "0"}
	p.Namespace, p.Labels = "kube-system", map[string]string{"component": component}
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "probe-port", ContainerPort: portNumber(port)}}
	return p
}

func portNumber(port string) int32 {
	number, _ := strconv.ParseInt(port, 10, 32)
	return int32(number)
}

func scrapeAll(t *testing.T, list target.List) {
	t.Helper()
	for _, x := range list.Targets {
		if resp, body := get(t, x.ScrapeURL, nil); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d: %s", x.Address, resp.StatusCode, body)
		}
	}
}

// TestCredentialsConfinement: whoever a pod pretends to be, the credentials of
// the cluster reach the control plane and the kubelets and nobody else.
func TestCredentialsConfinement(t *testing.T) {
	t.Parallel()
	certPEM, keyPEM := clientCertificate(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, cfg *rest.Config)
		want   string
	}{
		"token": {func(*testing.T, *rest.Config) {}, "Bearer " + fakeToken},
		"client certificate": {func(_ *testing.T, cfg *rest.Config) {
			cfg.CertData, cfg.KeyData = certPEM, keyPEM
		}, "Bearer " + fakeToken + "certificate of fleetwatch"},
		"token file": {func(t *testing.T, cfg *rest.Config) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(fakeToken), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg.BearerToken, cfg.BearerTokenFile = "", file
		}, "Bearer " + fakeToken},
		"exec plugin": {func(_ *testing.T, cfg *rest.Config) {
			cfg.BearerToken = ""
			cfg.ExecProvider = &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Command: "echo",
				Args: []string{`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` + fakeToken + `"}}`},
			}
		}, "Bearer " + fakeToken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newSnoop(t, false)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: server.host}},
			}}
			node.Status.DaemonEndpoints.KubeletEndpoint.Port = portNumber(server.port)
			secure := map[string]string{"prometheus.io/scheme": "https", "prometheus.io/path": "/hostile"}
			objects := []runtime.Object{
				node, controlPlanePod("kube-scheduler", server.host, server.port),
				annotatedPod("hostile", server.host, server.port, secure),
			}
			// One that dresses as the control plane, in its own namespace.
			dressed := annotatedPod("dressed", server.host, server.port, map[string]string{"prometheus.io/scheme": "https", "prometheus.io/path": "/dressed"})
			dressed.Labels = map[string]string{"component": "kube-controller-manager", "k8s-app": "kube-dns"}
			api := newFakeAPI(t, append(objects, dressed)...)
			r := start(t, api, func(cfg *collector.Config) { c.change(t, cfg.REST) })
			list := r.await(t, "all are found", func(l target.List) bool { return l.Synced && len(l.Targets) == 5 })
			// The snoop's certificate is signed by itself: the annotated pods
			// are verified and refused. Make them trusted for this test.
			for _, x := range list.Targets {
				resp, body := get(t, x.ScrapeURL, nil)
				annotated := x.Job == "kubernetes-pods"
				if annotated && resp.Header.Get("X-Fleetwatch-Gateway-Error") != "tls" || !annotated && resp.StatusCode != http.StatusOK {
					t.Errorf("%s: status %d: %s", x.Address, resp.StatusCode, body)
				}
			}
			want := map[string]string{"/metrics": c.want, "/metrics/cadvisor": c.want}
			if diff := cmp.Diff(want, server.credentials()); diff != "" {
				t.Errorf("credentials by path (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoCredentialsWithoutDeclaration: a job that trusts anything still sends
// no credential that it did not declare, and none goes over plain http.
func TestNoCredentialsWithoutDeclaration(t *testing.T) {
	t.Parallel()
	secure, plain := newSnoop(t, false), newSnoop(t, true)
	file := filepath.Join(t.TempDir(), "own.yml")
	own := fmt.Sprintf(`scrape_configs:
- job_name: kubernetes-pods
  scheme: https
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["%[1]s"]}]
  metrics_path: /undeclared
- job_name: own-basic
  scheme: https
  basic_auth: {username: u, password: p}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["%[1]s"]}]
  metrics_path: /basic
- job_name: own-declared
  scheme: https
  bearer_token_file: /var/run/secrets/kubernetes.io/serviceaccount/token
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["%[1]s"]}]
  metrics_path: /redirect
- job_name: own-plain
  authorization: {credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token}
  static_configs: [{targets: ["%[2]s"]}]
  metrics_path: /declared-but-plain
`, secure.Listener.Addr(), plain.Listener.Addr())
	if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, newFakeAPI(t), func(cfg *collector.Config) { cfg.ScrapeConfigs = []string{file} })
	list := r.await(t, "all are found", func(l target.List) bool { return l.Synced && len(l.Targets) == 4 })
	scrapeAll(t, list)
	want := map[string]string{
		"/undeclared": "", "/basic": "Basic dTpw",
		"/redirect": "Bearer " + fakeToken, "/after-redirect": "Bearer " + fakeToken, // within the same target
	}
	if diff := cmp.Diff(want, secure.credentials()); diff != "" {
		t.Errorf("credentials by path (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"/declared-but-plain": ""}, plain.credentials()); diff != "" {
		t.Errorf("credentials over plain http (-want +got):\n%s", diff)
	}
}

// TestAPIServerIsVerified: the API server's own job checks the certificate
// against the cluster's CA, and fails closed.
func TestAPIServerIsVerified(t *testing.T) {
	t.Parallel()
	server := newSnoop(t, false)
	pod := controlPlanePod("kube-apiserver", server.host, server.port)
	pod.Annotations["kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"] = server.Listener.Addr().String()
	r := start(t, newFakeAPI(t, pod), nil)
	list := r.await(t, "it is found", func(l target.List) bool { return len(l.Targets) == 1 })
	resp, body := get(t, list.Targets[0].ScrapeURL, nil)
	if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("X-Fleetwatch-Gateway-Error") != "tls" {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	if seen := server.credentials(); len(seen) != 0 {
		t.Errorf("a server with the wrong certificate was shown %v", seen)
	}
}

// TestNothingSecretIsPublished looks for the credentials in all that the
// collector serves.
func TestNothingSecretIsPublished(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "own.yml")
	own := `scrape_configs:
- job_name: own
  basic_auth: {username: someone, password: hunter2}
  http_headers: {X-Api-Key: {secrets: [hunter3]}}
  params: {token: [hunter4]}
  static_configs: [{targets: ["127.0.0.1:1"]}]
`
	if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, newFakeAPI(t), func(cfg *collector.Config) { cfg.ScrapeConfigs = []string{file} })
	list := r.await(t, "synced", synced)
	for _, p := range list.Pools {
		for _, secret := range []string{"hunter", "someone", "<secret>", "serviceaccount", "kubernetes_sd", "relabel_configs:\n- source_labels: [__meta"} {
			if strings.Contains(p.Config, secret) {
				t.Errorf("pool %s contains %q", p.Name, secret)
			}
		}
	}
	if slices.ContainsFunc(list.Targets, func(x target.Target) bool { return strings.Contains(x.ScrapeURL+x.Address, "hunter") }) {
		t.Error("an address contains a secret")
	}
}

func clientCertificate(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fleetwatch"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}
