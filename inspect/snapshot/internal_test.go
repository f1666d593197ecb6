package snapshot

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestKeepComponent(t *testing.T) {
	static := func(component, podIP, probeHost string, port intstr.IntOrString, scheme corev1.URIScheme) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: component, Labels: map[string]string{"component": component}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Command:       []string{component, "--quota-backend-bytes=8589934592", "--leader-elect=true", "--token-auth-file=/secret"},
				Ports:         []corev1.ContainerPort{{Name: "probe-port", ContainerPort: 2381}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: probeHost, Port: port, Scheme: scheme, Path: "/livez"}}},
			}}},
			Status: corev1.PodStatus{PodIP: podIP},
		}
	}
	for _, test := range []struct {
		name  string
		pod   *corev1.Pod
		want  *Component
		local bool
	}{
		{
			"kubeadm etcd", static("etcd", "10.0.0.5", "127.0.0.1", intstr.FromString("probe-port"), "HTTP"),
			&Component{Name: "etcd", PodIP: "10.0.0.5", ProbeHost: "127.0.0.1", Scheme: "http", Port: 2381, Path: "/livez", QuotaBytes: 8 << 30}, true,
		},
		{
			"etcd on this machine", static("etcd", "127.0.0.1", "127.0.0.1", intstr.FromInt32(2400), ""),
			&Component{Name: "etcd", PodIP: "127.0.0.1", ProbeHost: "127.0.0.1", Scheme: "http", Port: 2400, Path: "/livez", QuotaBytes: 8 << 30}, false,
		},
		{
			"API server", static("kube-apiserver", "10.0.0.5", "10.0.0.5", intstr.FromInt32(6443), "HTTPS"),
			&Component{Name: "kube-apiserver", PodIP: "10.0.0.5", ProbeHost: "10.0.0.5", Scheme: "https", Port: 6443, Path: "/livez", QuotaBytes: 8 << 30}, false,
		},
		{"another component", static("my-etcd", "10.0.0.5", "", intstr.FromInt32(1), ""), nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := keepPod(test.pod).Component
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if got != nil && got.nodeLocal() != test.local {
				t.Errorf("node local: %t", got.nodeLocal())
			}
		})
	}
}

func TestDirectURL(t *testing.T) {
	for _, test := range []struct {
		component Component
		want      string
	}{
		{Component{PodIP: "10.0.0.5", Scheme: "http", Port: 2381}, "http://10.0.0.5:2381/metrics"},
		{Component{PodIP: "fd00::5", Scheme: "https", Port: 1}, "https://[fd00::5]:1/metrics"},
		{Component{PodIP: "169.254.169.254", Scheme: "http", Port: 80}, ""},
		{Component{PodIP: "0.0.0.0", Scheme: "http", Port: 80}, ""},
		{Component{PodIP: "224.0.0.1", Scheme: "http", Port: 80}, ""},
		{Component{PodIP: "example.com", Scheme: "http", Port: 80}, ""},
		{Component{PodIP: "10.0.0.5", Scheme: "gopher", Port: 80}, "http://10.0.0.5:80/metrics"},
		{Component{PodIP: "10.0.0.5", Scheme: "http"}, ""},
	} {
		got, err := directURL(&test.component, "/metrics")
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%+v: got %q, %v", test.component, got, err)
		}
	}
}

func TestPodRequests(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Resources: list("100m", "1Gi"), RestartPolicy: &always}, {Resources: list("2", "100Mi")}},
		Containers:     []corev1.Container{{Resources: list("500m", "1Gi")}, {Resources: list("250m", "1Gi")}},
		Overhead:       corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")},
	}
	if diff := cmp.Diff(Resources{CPUMilli: 2110, Memory: 3 << 30}, podRequests(&spec)); diff != "" {
		t.Errorf("init step and sidecar (-want +got):\n%s", diff)
	}
	pod := list("4", "5Gi")
	spec.Resources = &pod
	if diff := cmp.Diff(Resources{CPUMilli: 4010, Memory: 5 << 30}, podRequests(&spec)); diff != "" {
		t.Errorf("pod level (-want +got):\n%s", diff)
	}
}

func TestSkew(t *testing.T) {
	sent := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		header string
		want   time.Duration
	}{
		{"", 0},
		{"garbage", 0},
		{sent.Format(http.TimeFormat), 0},
		{sent.Add(time.Second).Format(http.TimeFormat), 0},
		{sent.Add(time.Hour).Format(http.TimeFormat), time.Hour},
		{sent.Add(-time.Minute).Format(http.TimeFormat), -time.Minute},
	} {
		got := skew(test.header, sent, sent.Add(200*time.Millisecond))
		if (got - test.want).Abs() > time.Second {
			t.Errorf("%q: got %s, want %s", test.header, got, test.want)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add("apiserver_request_total{code=\"200\"} 1\n# c\nother 2\n")
	f.Add("process_start_time_seconds NaN\n")
	f.Add("etcd_request_duration_seconds_bucket{le=\"+Inf\"} 1e999\n")
	f.Add("apiserver_request_total{code=\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		samples, err := parseMetrics(strings.NewReader(text), apiServerFamilies, time.Unix(0, 0))
		if err != nil {
			return
		}
		for _, sample := range samples.Values {
			if _, declared := apiServerFamilies[sample.Name]; !declared {
				t.Errorf("kept %q, which is not declared", sample.Name)
			}
		}
	})
}

func FuzzHealthReport(f *testing.F) {
	f.Add(200, "[+]ping ok\nreadyz check passed\n")
	f.Add(500, "[-]etcd failed: reason withheld\n[+]log ok\n")
	f.Fuzz(func(t *testing.T, status int, text string) {
		report, err := readHealthReport(status, strings.NewReader(text))
		if err == nil && (len(report.Checks) == 0 || report.OK && status != http.StatusOK) {
			t.Errorf("%d %q gave %+v", status, text, report)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":"fleetwatch.io/snapshot/v1","snapshots":[{"cluster":"a","reads":{}}]}`))
	f.Add([]byte(`{"schema":"other"}`))
	f.Add([]byte{0x1f, 0x8b, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		if file, err := Decode(strings.NewReader(string(text))); err == nil && len(file.Snapshots) == 0 {
			t.Error("a file without snapshots is accepted")
		}
	})
}
