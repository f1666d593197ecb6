package bed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/content"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/control"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/proc"
)

// process is a child to start and where it can be reached.
type process struct {
	proc.Spec
	endpoint string
}

// plan is the processes of a cluster in the order in which they start.
type plan struct{ etcd, apiservers, controllers, workloads []process }

// AppRate is how fast every series of the demo application grows.
const AppRate = 5

func (c *cluster) processes() plan {
	b := c.bed.config.Binaries
	var p plan
	for i := range c.Options().EtcdMembers {
		url := fmt.Sprintf("http://127.0.0.1:%d/health", c.EtcdMetricsPort(i))
		p.etcd = append(p.etcd, c.process(content.ProcessName(content.Etcd, i), b.Etcd, content.Etcd, control.Etcd(c.Cluster, i),
			probeURL(url, nil), control.EtcdURL(c.Cluster, i), 8*time.Second))
	}
	for i := range c.Options().APIServers {
		p.apiservers = append(p.apiservers, c.process(content.ProcessName(content.APIServer, i), b.APIServer, content.APIServer, control.APIServer(c.Cluster, i),
			c.probeTLS(c.Server(i)+"/readyz"), c.Server(i), 10*time.Second))
	}
	controllers := fmt.Sprintf("https://127.0.0.1:%d", c.ControllerPort())
	kcm := c.process(content.ControllerManager, "", content.ControllerManager, control.ControllerManager(c.Cluster),
		c.probeTLS(controllers+"/healthz"), controllers, 3*time.Second)
	kcm.Before = c.before(func(ctx context.Context) error { return c.forgetLease(ctx, content.ControllerManager) })
	scheduling := fmt.Sprintf("https://127.0.0.1:%d", c.SchedulerPort())
	scheduler := c.process(content.Scheduler, "", content.Scheduler, control.Scheduler(c.Cluster),
		c.probeTLS(scheduling+"/readyz"), scheduling, 3*time.Second)
	scheduler.Before = c.before(func(ctx context.Context) error { return c.forgetLease(ctx, content.Scheduler) })
	p.controllers = []process{kcm, scheduler}

	kwokURL := fmt.Sprintf("http://127.0.0.1:%d", c.KWOKPort())
	kwok := c.process("kwok", b.KWOK, "", content.KWOK(c.Cluster), probeURL(kwokURL+"/healthz", nil), kwokURL, 3*time.Second)
	kwok.Before = c.before(c.forgetNodeLeases)
	kubeletHealth := fmt.Sprintf("127.0.0.1:%d", c.KubeletHealthPort())
	kubelet := c.process("kubelet", "", "kubelet", []string{
		"--kubeconfig=" + c.ClientConfig("kubelet"), "--client-ca-file=" + c.PKI("ca.crt"), "--cert-dir=" + c.PKI("kubelet"),
		"--kwok=" + kwokURL, fmt.Sprintf("--port=%d", c.KubeletPort()), "--health=" + kubeletHealth,
	}, probeURL("http://"+kubeletHealth+"/healthz", nil), fmt.Sprintf("https://<node>:%d", c.KubeletPort()), 3*time.Second)
	ksm := fmt.Sprintf("http://127.0.0.1:%d", c.KSMPort())
	app := fmt.Sprintf("http://127.0.0.1:%d", c.AppPort())
	p.workloads = []process{
		kwok, kubelet,
		c.process("kube-state-metrics", b.KubeStateMetrics, "", content.KubeStateMetrics(c.Cluster), probeURL(ksm+"/livez", nil), ksm, 3*time.Second),
		c.process("app", "", "app", []string{
			fmt.Sprintf("--listen=127.0.0.1:%d,127.0.0.1:%d", c.AppPort(), c.AppServicePort()),
			fmt.Sprintf("--series=%d", c.Options().AppSeries), fmt.Sprintf("--rate=%d", AppRate),
		}, probeURL(app+"/healthz", nil), app, 3*time.Second),
	}
	if b.CoreDNS != "" {
		for _, dns := range content.Instances(c.Cluster, content.CoreDNS) {
			ready := fmt.Sprintf("http://%s:%d/ready", dns.Address, c.DNSReadyPort())
			one := c.process(dns.Process, b.CoreDNS, "", []string{"-conf", c.Path("Corefile")},
				probeURL(ready, nil), fmt.Sprintf("%s:%d", dns.Address, c.DNSPort()), 3*time.Second)
			one.Env = append(one.Env, "POD_IP="+dns.Address)
			p.workloads = append(p.workloads, one)
		}
	}
	if b.NodeExporter != "" {
		url := fmt.Sprintf("http://127.0.0.1:%d", c.NodeExporterPort())
		p.workloads = append(p.workloads, c.process("node-exporter", b.NodeExporter, "", []string{
			fmt.Sprintf("--web.listen-address=127.0.0.1:%d", c.NodeExporterPort()), "--log.level=warn",
		}, probeURL(url, nil), url, 3*time.Second))
	}
	return p
}

// process describes a child; without a path it is this program's subcommand.
func (c *cluster) process(name, path, subcommand string, args []string, probe func(context.Context) error, endpoint string, grace time.Duration) process {
	if path == "" {
		path, args = c.bed.config.Binaries.Self, append([]string{subcommand}, args...)
	}
	return process{endpoint: endpoint, Spec: proc.Spec{
		Name: name, Path: path, Args: args, Log: c.Log(name), Probe: probe, Hold: c.HoldFile(name), Grace: grace,
		Env: []string{"KUBECONFIG="}, // nothing may fall back to the user's clusters
	}}
}

// before makes a process wait for the API server, and then prepares its start.
func (c *cluster) before(prepare func(context.Context) error) func(context.Context) error {
	probe := c.probeTLS(c.Server(0) + "/readyz")
	return func(ctx context.Context) error {
		err := poll(ctx, 300*time.Millisecond, func() error {
			one, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return probe(one)
		})
		if err != nil {
			return err
		}
		return prepare(ctx)
	}
}

// forgetLease removes the leadership of a process that is known to be dead,
// so that its successor need not wait until it runs out.
func (c *cluster) forgetLease(ctx context.Context, name string) error {
	err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete stale lease %s: %w", name, err)
	}
	return nil
}

// forgetNodeLeases does the same for the node leases that a dead KWOK held.
func (c *cluster) forgetNodeLeases(ctx context.Context) error {
	err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete stale node leases: %w", err)
	}
	return nil
}

// probeTLS asks a URL that the cluster's authority vouches for.
func (c *cluster) probeTLS(url string) func(context.Context) error {
	pool := x509.NewCertPool()
	if pem, err := os.ReadFile(c.PKI("ca.crt")); err == nil {
		pool.AppendCertsFromPEM(pem)
	}
	return probeURL(url, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool})
}

// probeURL makes a probe that wants status 200. Each probe dials anew, as a
// kubelet's does, so a half-dead server cannot answer by an old connection.
func probeURL(url string, config *tls.Config) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", strings.SplitN(url, "?", 2)[0], response.Status)
		}
		return nil
	}
}
