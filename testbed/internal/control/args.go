// Package control holds the command lines of a cluster's control plane, as
// kubeadm writes them into its static pods, with loopback addresses and the
// testbed's ports and files. It is pure.
package control

import (
	"fmt"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

// EtcdName is the name of etcd member i.
func EtcdName(c layout.Cluster, i int) string { return c.ControlPlaneNode(i).Name }

// EtcdURL is the client URL of etcd member i.
func EtcdURL(c layout.Cluster, i int) string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.EtcdClientPort(i))
}

func etcdPeerURL(c layout.Cluster, i int) string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.EtcdPeerPort(i))
}

// Etcd is the arguments of etcd member i.
func Etcd(c layout.Cluster, i int) []string {
	members := make([]string, c.Options().EtcdMembers)
	for m := range members {
		members[m] = EtcdName(c, m) + "=" + etcdPeerURL(c, m)
	}
	return []string{
		"--name=" + EtcdName(c, i),
		"--data-dir=" + c.Path("etcd", fmt.Sprint(i)),
		"--advertise-client-urls=" + EtcdURL(c, i),
		"--listen-client-urls=" + EtcdURL(c, i),
		"--initial-advertise-peer-urls=" + etcdPeerURL(c, i),
		"--listen-peer-urls=" + etcdPeerURL(c, i),
		"--listen-metrics-urls=" + fmt.Sprintf("http://127.0.0.1:%d", c.EtcdMetricsPort(i)),
		"--initial-cluster=" + strings.Join(members, ","),
		"--initial-cluster-token=testbed-" + c.Name,
		"--cert-file=" + c.PKI("etcd/server.crt"),
		"--key-file=" + c.PKI("etcd/server.key"),
		"--client-cert-auth=true",
		"--trusted-ca-file=" + c.PKI("etcd/ca.crt"),
		"--peer-cert-file=" + c.PKI("etcd/peer.crt"),
		"--peer-key-file=" + c.PKI("etcd/peer.key"),
		"--peer-client-cert-auth=true",
		"--peer-trusted-ca-file=" + c.PKI("etcd/ca.crt"),
		"--snapshot-count=10000",
		"--log-level=warn",
	}
}

// APIServer is the arguments of API server i.
func APIServer(c layout.Cluster, i int) []string {
	etcd := make([]string, c.Options().EtcdMembers)
	for m := range etcd {
		etcd[m] = EtcdURL(c, m)
	}
	return []string{
		"--advertise-address=127.0.0.1",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.APIServerPort(i)),
		"--endpoint-reconciler-type=none", // it refuses loopback addresses
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--tls-cert-file=" + c.PKI("apiserver.crt"),
		"--tls-private-key-file=" + c.PKI("apiserver.key"),
		"--etcd-servers=" + strings.Join(etcd, ","),
		"--etcd-cafile=" + c.PKI("etcd/ca.crt"),
		"--etcd-certfile=" + c.PKI("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + c.PKI("apiserver-etcd-client.key"),
		"--kubelet-client-certificate=" + c.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.PKI("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.PKI("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--proxy-client-cert-file=" + c.PKI("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.PKI("front-proxy-client.key"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.PKI("sa.pub"),
		"--service-account-signing-key-file=" + c.PKI("sa.key"),
		"--service-cluster-ip-range=" + layout.ServiceCIDR,
		"--audit-policy-file=" + c.Path("audit", "policy.yaml"),
		"--audit-log-path=" + c.Path("audit", fmt.Sprintf("audit-%d.log", i)),
		"--audit-log-maxsize=64",
		"--audit-log-maxbackup=2",
		"--event-ttl=1h",
	}
}

// NodeMonitorGrace is how long a node may be silent, in seconds, until the
// controller manager calls it NotReady; KWOK renews a node's lease of
// NodeLease seconds every quarter of it.
const (
	NodeMonitorGrace = 16
	NodeLease        = 20
)

// ControllerManager is the arguments of kube-controller-manager.
func ControllerManager(c layout.Cluster) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ControllerPort()),
		"--kubeconfig=" + c.ClientConfig("controller-manager"),
		"--authentication-kubeconfig=" + c.ClientConfig("controller-manager"),
		"--authorization-kubeconfig=" + c.ClientConfig("controller-manager"),
		"--tls-cert-file=" + c.PKI("controller-manager-server.crt"),
		"--tls-private-key-file=" + c.PKI("controller-manager-server.key"),
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--root-ca-file=" + c.PKI("ca.crt"),
		"--cluster-signing-cert-file=" + c.PKI("ca.crt"),
		"--cluster-signing-key-file=" + c.PKI("ca.key"),
		"--service-account-private-key-file=" + c.PKI("sa.key"),
		"--use-service-account-credentials=true",
		"--allocate-node-cidrs=true",
		"--cluster-cidr=" + layout.PodCIDR,
		"--service-cluster-ip-range=" + layout.ServiceCIDR,
		"--cluster-name=" + c.Name,
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--leader-elect=true",
		"--node-monitor-period=2s",
		fmt.Sprintf("--node-monitor-grace-period=%ds", NodeMonitorGrace),
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
}

// Scheduler is the arguments of kube-scheduler.
func Scheduler(c layout.Cluster) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.SchedulerPort()),
		"--kubeconfig=" + c.ClientConfig("scheduler"),
		"--authentication-kubeconfig=" + c.ClientConfig("scheduler"),
		"--authorization-kubeconfig=" + c.ClientConfig("scheduler"),
		"--tls-cert-file=" + c.PKI("scheduler-server.crt"),
		"--tls-private-key-file=" + c.PKI("scheduler-server.key"),
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--leader-elect=true",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
}

// AuditPolicy is the audit policy of every API server: who changed what in
// full, who read what by name, and none of the machinery's own chatter.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*"]
- level: None
  resources:
  - group: coordination.k8s.io
    resources: [leases]
  - group: ""
    resources: [events]
  - group: events.k8s.io
    resources: [events]
- level: None
  users: ["system:kwok-controller", "system:kube-scheduler", "system:apiserver", "system:testbed-kubelet"]
- level: None
  userGroups: ["system:serviceaccounts:kube-system", "system:nodes"]
- level: Metadata
  resources:
  - group: ""
    resources: [secrets, configmaps, "serviceaccounts/token"]
  - group: authentication.k8s.io
    resources: [tokenreviews]
- level: Metadata
  verbs: [get, list, watch]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
`
