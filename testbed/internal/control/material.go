package control

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/pki"
)

// client is a component that talks to the API server with a certificate.
type client struct {
	file, name string
	groups     []string
	server     int // which API server it prefers
}

func clients(c layout.Cluster) []client {
	last := c.Options().APIServers - 1
	return []client{
		{"admin", "kubernetes-admin", []string{"system:masters"}, 0},
		{"controller-manager", "system:kube-controller-manager", nil, 0},
		{"scheduler", "system:kube-scheduler", nil, 0},
		{"kwok", "system:kwok-controller", nil, last},
		{"kube-state-metrics", "system:kube-state-metrics", nil, last},
		{"coredns", "system:coredns", nil, last},
		{"kubelet", "system:testbed-kubelet", nil, last},
	}
}

// WriteMaterial writes everything that the control plane reads at its start:
// certificates, keys, kubeconfigs and the audit policy. Authorities and the
// token signing key are kept if they are there already.
func WriteMaterial(c layout.Cluster, now time.Time) error {
	for _, dir := range []string{"pki/etcd", "pki/kubelet", "kubeconfigs", "logs", "holds", "audit", "etcd"} {
		if err := os.MkdirAll(c.Path(dir), 0o755); err != nil {
			return err
		}
	}
	for m := range c.Options().EtcdMembers {
		if err := os.MkdirAll(c.Path("etcd", fmt.Sprint(m)), 0o700); err != nil {
			return err
		}
	}
	ca, err := pki.OpenAuthority(c.PKI("ca"), "kubernetes", now)
	if err != nil {
		return err
	}
	proxyCA, err := pki.OpenAuthority(c.PKI("front-proxy-ca"), "front-proxy-ca", now)
	if err != nil {
		return err
	}
	etcdCA, err := pki.OpenAuthority(c.PKI("etcd/ca"), "etcd-ca", now)
	if err != nil {
		return err
	}
	if err := pki.EnsureSigningKey(c.PKI("sa")); err != nil {
		return err
	}
	loopback := []string{"localhost", "127.0.0.1"}
	apiserver := append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", layout.APIService,
	}, loopback...)
	for _, leaf := range []struct {
		by   *pki.Authority
		file string
		leaf pki.Leaf
	}{
		{ca, "apiserver", pki.Leaf{Name: "kube-apiserver", Hosts: apiserver}},
		{ca, "apiserver-kubelet-client", pki.Leaf{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}, Client: true}},
		{ca, "controller-manager-server", pki.Leaf{Name: "kube-controller-manager", Hosts: loopback}},
		{ca, "scheduler-server", pki.Leaf{Name: "kube-scheduler", Hosts: loopback}},
		{proxyCA, "front-proxy-client", pki.Leaf{Name: "front-proxy-client", Client: true}},
		{etcdCA, "etcd/server", pki.Leaf{Name: "etcd", Hosts: loopback, Client: true}},
		{etcdCA, "etcd/peer", pki.Leaf{Name: "etcd", Hosts: loopback, Client: true}},
		{etcdCA, "apiserver-etcd-client", pki.Leaf{Name: "kube-apiserver-etcd-client", Client: true}},
		{etcdCA, "etcd/healthcheck-client", pki.Leaf{Name: "kube-etcd-healthcheck-client", Client: true}},
	} {
		pair, err := leaf.by.Issue(leaf.leaf, now)
		if err != nil {
			return err
		}
		if err := pair.Write(c.PKI(leaf.file)); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes() {
		pair, err := ca.Issue(pki.Leaf{
			Name: "system:node:" + node.Name, Groups: []string{"system:nodes"},
			Hosts: []string{node.Name, node.IP},
		}, now)
		if err != nil {
			return err
		}
		if err := pair.Write(c.PKI("kubelet/" + node.Name)); err != nil {
			return err
		}
	}
	for _, cl := range clients(c) {
		pair, err := ca.Issue(pki.Leaf{Name: cl.name, Groups: cl.groups, Client: true}, now)
		if err != nil {
			return err
		}
		config := clientcmdapi.NewConfig()
		addContext(config, c, ca, pair, cl.name, cl.server)
		config.CurrentContext = c.Name
		if err := writeConfig(*config, c.ClientConfig(cl.file)); err != nil {
			return err
		}
	}
	return os.WriteFile(c.Path("audit", "policy.yaml"), []byte(AuditPolicy), 0o644)
}

// WriteKubeconfig writes the user's kubeconfig with an administrator's context
// for each cluster, named like the cluster. Each context carries Fleetwatch's
// extension, which says that it belongs to a testbed.
func WriteKubeconfig(o layout.Options, now time.Time) error {
	config := clientcmdapi.NewConfig()
	for _, c := range o.ClusterList() {
		ca, err := pki.OpenAuthority(c.PKI("ca"), "kubernetes", now)
		if err != nil {
			return err
		}
		pair, err := ca.Issue(pki.Leaf{Name: "kubernetes-admin", Groups: []string{"system:masters"}, Client: true}, now)
		if err != nil {
			return err
		}
		addContext(config, c, ca, pair, c.Name+"-admin", 0)
	}
	config.CurrentContext = o.ClusterList()[0].Name
	return writeConfig(*config, o.Kubeconfig())
}

// extension is the content of the context extension that Fleetwatch reads.
const (
	extensionName = "fleetwatch.io/cluster"
	extensionJSON = `{"environment":"testbed"}`
)

func addContext(config *clientcmdapi.Config, c layout.Cluster, ca *pki.Authority, user pki.Pair, userName string, server int) {
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.Server(server), CertificateAuthorityData: ca.CertPEM()}
	config.AuthInfos[userName] = &clientcmdapi.AuthInfo{ClientCertificateData: user.Cert, ClientKeyData: user.Key}
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = c.Name, userName
	context.Extensions[extensionName] = rawExtension(extensionJSON)
	config.Contexts[c.Name] = context
}

// writeConfig replaces the file in one step, so that a reader never sees half of it.
func writeConfig(config clientcmdapi.Config, path string) error {
	data, err := clientcmd.Write(config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
