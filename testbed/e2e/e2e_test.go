// Package e2e runs the built testbed program: one cluster of five nodes, its
// faults, and its ends. It wants bin/testbed with kwok, kube-state-metrics
// and coredns beside it, or TESTBED_BIN, and fails without.
package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 90 * time.Second // on a machine that is busy with other things

func TestTestbed(t *testing.T) {
	bed := start(t, t.TempDir(), freePorts(t))
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(bed.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("nodes are ready", func(t *testing.T) { checkNodes(t, client) })
	t.Run("processes are shown as pods", func(t *testing.T) { checkMirrors(t, client) })
	t.Run("DNS is redundant", func(t *testing.T) { checkDNS(t, client, bed) })
	t.Run("kubelets ask who is there", func(t *testing.T) { checkKubelet(t, client, config, bed) })
	t.Run("faults", func(t *testing.T) { checkFaults(t, client, bed) })
	t.Run("bad input", func(t *testing.T) { checkBadInput(t, bed) })
	t.Run("a dead child comes back", func(t *testing.T) { checkRestart(t, bed) })
	t.Run("kill -9 leaves no child", func(t *testing.T) { checkKilled(t, bed) })
	t.Run("a second start goes on with the data", func(t *testing.T) {
		again := start(t, bed.dir, bed.base)
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "demo-faults", metav1.GetOptions{}); err != nil {
			t.Errorf("what was there before the kill is gone: %v", err)
		}
		if out, err := again.run(t, "down"); err != nil {
			t.Errorf("down: %v: %s", err, out)
		}
		if err := again.wait(t); err != nil {
			t.Errorf("up ended with %v after down", err)
		}
		if out, err := again.run(t, "status"); err == nil || !strings.Contains(out, "testbed up") {
			t.Errorf("status of a stopped testbed: %v: %s", err, out)
		}
	})
}

func checkNodes(t *testing.T, client kubernetes.Interface) {
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 6 {
		t.Errorf("%d nodes, want 5 workers and a control plane", len(list.Items))
	}
	addresses := map[string]bool{}
	for i := range list.Items {
		n := &list.Items[i]
		if !nodeReady(n) {
			t.Errorf("node %s is not Ready", n.Name)
		}
		addresses[addressOf(n)] = true
	}
	if len(addresses) != len(list.Items) {
		t.Errorf("nodes share addresses: %v", addresses)
	}
}

func checkMirrors(t *testing.T, client kubernetes.Interface) {
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		list, err := client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "tier=control-plane,component=" + component})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || !podReady(&list.Items[0]) || list.Items[0].Status.PodIP != "127.0.0.1" {
			t.Errorf("pods of %s: %d, want one that is Ready at 127.0.0.1", component, len(list.Items))
		}
	}
}

// checkDNS asks both replicas of the cluster's DNS, which are on two nodes.
func checkDNS(t *testing.T, client kubernetes.Interface, bed *testbed) {
	eventually(t, "the Deployment of CoreDNS to have two ready replicas", func() bool {
		d, err := client.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == 2 && d.Status.Replicas == 2
	})
	list, err := client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		t.Fatal(err)
	}
	nodes, addresses := map[string]bool{}, map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		nodes[pod.Spec.NodeName], addresses[pod.Status.PodIP] = true, true
		address := net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(bed.base+60))
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}
		ips, err := resolver.LookupHost(t.Context(), "kubernetes.default.svc.cluster.local.")
		if err != nil || len(ips) != 1 || ips[0] != "10.96.0.1" {
			t.Errorf("%s at %s resolves the API server to %v, %v", pod.Name, address, ips, err)
		}
		if code, err := getPlain(t, fmt.Sprintf("http://%s:%d/metrics", pod.Status.PodIP, bed.base+61)); code != http.StatusOK {
			t.Errorf("%s answers %d, %v for its metrics", pod.Name, code, err)
		}
	}
	if len(nodes) != 2 || len(addresses) != 2 || len(list.Items) != 2 {
		t.Errorf("%d pods of CoreDNS on nodes %v at %v, want two of each", len(list.Items), nodes, addresses)
	}
}

func checkKubelet(t *testing.T, client kubernetes.Interface, config *rest.Config, bed *testbed) {
	node, err := client.CoreV1().Nodes().Get(t.Context(), "a-worker-003", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.CAData)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	base := fmt.Sprintf("https://%s:%d", addressOf(node), node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	get := func(path, token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := web.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	token := func(namespace, account string) string {
		t.Helper()
		made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.Status.Token
	}
	if code, _ := get("/metrics", ""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", code)
	}
	if code, _ := get("/metrics", "nonsense"); code != http.StatusUnauthorized {
		t.Errorf("with a false token: %d, want 401", code)
	}
	if code, body := get("/metrics", token("default", "default")); code != http.StatusForbidden {
		t.Errorf("with a token that allows nothing: %d %s, want 403", code, body)
	}
	allowed := token("fleetwatch-system", "fleetwatch")
	for path, family := range map[string]string{
		"/metrics":          "kubelet_running_pods",
		"/metrics/resource": "node_cpu_usage_seconds_total",
		"/metrics/cadvisor": "container_memory_working_set_bytes",
		"/metrics/probes":   "prober_probe_total",
	} {
		if code, body := get(path, allowed); code != http.StatusOK || !strings.Contains(body, "\n"+family) {
			t.Errorf("%s: %d, want %s in %.300q", path, code, family, body)
		}
	}
	if code, _ := get("/pods", allowed); code != http.StatusForbidden {
		t.Errorf("/pods with a token for metrics alone: %d, want 403", code)
	}
	if code, _ := getPlain(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", bed.base+40)); code != http.StatusOK {
		t.Errorf("kube-state-metrics answers %d", code)
	}
}

func checkFaults(t *testing.T, client kubernetes.Interface, bed *testbed) {
	scheduler := func() *corev1.Pod {
		pod, err := client.CoreV1().Pods("kube-system").Get(t.Context(), "kube-scheduler-a-cp-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	backOffs := func() int32 {
		list, err := client.CoreV1().Events("demo-faults").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BackOff"})
		if err != nil {
			t.Fatal(err)
		}
		total := int32(0)
		for i := range list.Items {
			total += list.Items[i].Count
		}
		return total
	}
	silent := func() bool {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "a-worker-002", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return !nodeReady(node)
	}
	bed.must(t, "fault", "inject", "node-heartbeat", "--node", "a-worker-002")
	bed.must(t, "fault", "inject", "crash-loop")
	bed.must(t, "fault", "inject", "crash-loop")
	eventually(t, "the first BackOff event", func() bool { return backOffs() >= 1 })
	bed.must(t, "fault", "inject", "scheduler-down")
	eventually(t, "the scheduler's pod to be not Ready", func() bool { return !podReady(scheduler()) })
	bed.must(t, "fault", "inject", "service-no-endpoints")
	if out := bed.must(t, "fault", "list"); !strings.Contains(out, "a: a-worker-002") || !strings.Contains(out, "a: kube-scheduler") {
		t.Errorf("fault list does not show what is in effect:\n%s", out)
	}
	eventually(t, "the silent node to be NotReady", silent)
	eventually(t, "the silent node's pods to be not Ready", func() bool {
		ready, all := podsOf(t, client, "a-worker-002")
		return all > 0 && ready == 0
	})
	eventually(t, "a second BackOff event", func() bool { return backOffs() >= 2 })
	for _, name := range []string{"scheduler-down", "node-heartbeat", "crash-loop", "service-no-endpoints", "service-no-endpoints"} {
		bed.must(t, "fault", "clear", name)
	}
	eventually(t, "the scheduler's pod to be Ready again", func() bool { return podReady(scheduler()) })
	eventually(t, "the node to be Ready again", func() bool { return !silent() })
	eventually(t, "all of the node's pods to be Ready again", func() bool {
		ready, all := podsOf(t, client, "a-worker-002")
		return all > 0 && ready == all
	})
	eventually(t, "the crash-looping pod to go", func() bool {
		list, err := client.CoreV1().Pods("demo-faults").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

func checkBadInput(t *testing.T, bed *testbed) {
	base := fmt.Sprint(bed.base)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"runs already", []string{"up", "--dir", bed.dir, "--port-base", base}, "testbed down"},
		{"port in use", []string{"up", "--dir", t.TempDir(), "--port-base", base}, "--port-base"},
		{"missing program", []string{"up", "--dir", t.TempDir(), "--bin-dir", t.TempDir()}, "kwok"},
		{"unknown fault", []string{"fault", "inject", "nonsense", "--dir", bed.dir}, "scheduler-down"},
		{"unknown cluster", []string{"fault", "inject", "crash-loop", "--dir", bed.dir, "--cluster", "z"}, "--cluster"},
		{"unknown flag", []string{"up", "--nonsense"}, "--nonsense"},
		{"nothing runs", []string{"down", "--dir", t.TempDir()}, "testbed up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := bed.exec(t, tc.args...)
			last := strings.TrimSpace(out)
			if err == nil || !strings.Contains(last, tc.want) || strings.Count(last[strings.LastIndex(last, "testbed: ")+1:], "\n") > 0 {
				t.Errorf("%v, want one line about %q:\n%s", err, tc.want, out)
			}
		})
	}
}

func checkRestart(t *testing.T, bed *testbed) {
	app := bed.process(t, "app")
	if err := syscall.Kill(app.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the application to run again", func() bool {
		now := bed.process(t, "app")
		return now.Phase == "ready" && now.PID != app.PID && now.Restarts == app.Restarts+1
	})
}

func checkKilled(t *testing.T, bed *testbed) {
	processes := bed.processes(t)
	if err := bed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = bed.wait(t)
	for _, p := range processes {
		eventually(t, p.Name+" to end", func() bool { return errors.Is(syscall.Kill(p.PID, 0), syscall.ESRCH) })
	}
}

func getPlain(t *testing.T, url string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func addressOf(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podsOf counts the pods of a node that are Ready, of those that shall be:
// neither done nor broken on purpose, and simulated.
func podsOf(t *testing.T, client kubernetes.Interface, node string) (ready, all int) {
	t.Helper()
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{
		FieldSelector: "status.phase=Running,spec.nodeName=" + node,
		LabelSelector: "!testbed.fleetwatch.io/process,!testbed.fleetwatch.io/behaviour",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		all++
		if podReady(&list.Items[i]) {
			ready++
		}
	}
	return ready, all
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// freePorts finds a block of ports in which nothing listens.
func freePorts(t *testing.T) int {
	t.Helper()
	for base := 21000 + os.Getpid()%90*100; base < 60000; base += 100 {
		free := true
		for port := base; port < base+100 && free; port++ {
			var lc net.ListenConfig
			l, err := lc.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return base
		}
	}
	t.Fatal("no 100 free ports in a row")
	return 0
}
