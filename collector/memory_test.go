package collector_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

var program = flag.String("fleetwatch", "", "the fleetwatch binary to measure; built when not given")

const (
	memoryTargets = 1000
	memoryBar     = 60 << 20
)

// TestMemory starts the real command on a cluster of 1,000 annotated pods and
// as many that are not, scrapes every target three times, and holds the
// process to its bar.
func TestMemory(t *testing.T) {
	api := newFakeAPI(t, bigCluster(t)...)
	c := startCommand(t, api)
	var list target.List
	eventually(t, "the command has found every target", func() bool {
		resp, err := http.Get(c.url + "/clusters/big/targets") //nolint:noctx // polled
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&list) == nil && list.Synced
	})
	if len(list.Targets) != memoryTargets {
		t.Fatalf("%d targets, want %d", len(list.Targets), memoryTargets)
	}
	for range 3 {
		scrapeConcurrently(t, list)
	}
	http.DefaultClient.CloseIdleConnections()
	rss := c.rss(t)
	fmt.Printf("collector of %d targets, all of them scraped 3 times: %.1f MiB RSS (%.1f MiB of it the program file), bar %d MiB; peak while starting %.1f MiB\n",
		memoryTargets, mib(rss), mib(c.status(t, "RssFile:")), memoryBar>>20, mib(c.status(t, "VmHWM:")))
	if rss > memoryBar {
		t.Errorf("%.1f MiB RSS, bar %d MiB", mib(rss), memoryBar>>20)
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// bigCluster has pods of the size that real ones have, each annotated one with
// an address of its own.
func bigCluster(t *testing.T) []runtime.Object {
	t.Helper()
	body := bytes.Repeat([]byte("application_requests_total{code=\"200\",handler=\"/\"} 12345\n"), 200)
	var objects []runtime.Object
	for i := range memoryTargets {
		ip := fmt.Sprintf("127.1.%d.%d", i/250, i%250+1)
		listener := listen(t, ip+":0")
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		pod := annotatedPod(fmt.Sprintf("deployment-%d-5c9f7d8b6-abcde", i), ip, port, nil)
		weigh(pod)
		other := pod.DeepCopy()
		other.Name += "-other"
		other.Annotations["prometheus.io/scrape"] = "false"
		objects = append(objects, pod, other)
	}
	return objects
}

// weigh gives a pod the bulk of a real one: environment, volumes, probes,
// conditions, managed fields.
func weigh(pod *corev1.Pod) {
	pod.Labels = map[string]string{"app.kubernetes.io/name": "deployment", "app.kubernetes.io/instance": "deployment", "pod-template-hash": "5c9f7d8b6", "team": "payments"}
	pod.Annotations[corev1.LastAppliedConfigAnnotation] = strings.Repeat("x", 1500)
	for i := range 20 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("v", 40)})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}})
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:` + strings.Repeat("y", 2000) + `":{}}}`)}}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, Message: strings.Repeat("m", 100)})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "app:1", ContainerID: "containerd://" + strings.Repeat("0", 64)}}
}

func scrapeConcurrently(t *testing.T, list target.List) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, x := range list.Targets {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			resp, err := http.Get(x.ScrapeURL) //nolint:noctx // bounded by the gateway
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d, %v", x.Address, resp.StatusCode, err)
			}
		})
	}
	wg.Wait()
}

// command is a running 'fleetwatch collector'.
type command struct {
	url string
	pid int
}

func startCommand(t *testing.T, api *fakeAPI) command {
	t.Helper()
	binary := *program
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "fleetwatch")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/fleetwatch").CombinedOutput(); err != nil {
			t.Fatalf("build the command: %v\n%s", err, out)
		}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: big
clusters: [{name: big, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: big, user: {token: %s}}]
contexts: [{name: big, context: {cluster: big, user: big}}]
`, api.address, base64.StdEncoding.EncodeToString(api.ca()), fakeToken)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "collector", "--cluster", "big", "--kubeconfig", kubeconfig, "--context", "big", "--listen", "127.0.0.1:0") //nolint:noctx // ended below with SIGTERM
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	logs := bufio.NewScanner(stderr)
	var address string
	for address == "" && logs.Scan() {
		_, rest, _ := strings.Cut(logs.Text(), "address=")
		address, _, _ = strings.Cut(rest, " ")
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for logs.Scan() {
			t.Log(logs.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("the command ends with %v", err)
		}
	})
	if address == "" {
		t.Fatal("the command did not say where it serves")
	}
	return command{url: "http://" + address, pid: cmd.Process.Pid}
}

func (c command) rss(t *testing.T) int64 { return c.status(t, "VmRSS:") }

// status reads one line of /proc/PID/status, in bytes.
func (c command) status(t *testing.T, field string) int64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			var kb int64
			if _, err := fmt.Sscan(rest, &kb); err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no %s in the status of process %d", field, c.pid)
	return 0
}
