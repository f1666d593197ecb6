package control_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/control"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

func options(t *testing.T) layout.Options {
	return layout.Options{Dir: t.TempDir(), PortBase: 10100, Clusters: 2, Nodes: 2, EtcdMembers: 3, APIServers: 2, AppSeries: 1}
}

func TestArguments(t *testing.T) {
	c := options(t).ClusterList()[1]
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"etcd", control.Etcd(c, 2), []string{"--name=b-cp-2", "--listen-client-urls=https://127.0.0.1:10212", "--listen-metrics-urls=http://127.0.0.1:10218", "--client-cert-auth=true"}},
		{"kube-apiserver", control.APIServer(c, 1), []string{"--secure-port=10201", "--endpoint-reconciler-type=none", "--authorization-mode=Node,RBAC", "--etcd-servers=https://127.0.0.1:10210,https://127.0.0.1:10211,https://127.0.0.1:10212"}},
		{"kube-controller-manager", control.ControllerManager(c), []string{"--secure-port=10220", "--use-service-account-credentials=true", "--cluster-name=b"}},
		{"kube-scheduler", control.Scheduler(c), []string{"--secure-port=10221"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, want := range tc.want {
				if !slices.Contains(tc.args, want) {
					t.Errorf("no %s in %s", want, strings.Join(tc.args, " "))
				}
			}
			for _, arg := range tc.args {
				if strings.Contains(arg, "0.0.0.0") {
					t.Errorf("%s listens beyond loopback", arg)
				}
			}
		})
	}
}

func TestLeaseOutlivesRenewals(t *testing.T) {
	renew := control.NodeLease / 4
	if control.NodeMonitorGrace < 3*renew {
		t.Errorf("a grace of %d s forgives less than two lost renewals of %d s", control.NodeMonitorGrace, renew)
	}
}

func TestMaterialAndKubeconfig(t *testing.T) {
	o := options(t)
	for _, c := range o.ClusterList() {
		if err := control.WriteMaterial(c, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, arg := range slices.Concat(control.APIServer(c, 0), control.Etcd(c, 0), control.ControllerManager(c), control.Scheduler(c)) {
			name, path, _ := strings.Cut(arg, "=")
			if !strings.HasPrefix(path, c.Dir) || strings.HasSuffix(name, "-log-path") {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := control.WriteKubeconfig(o, time.Now()); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(o.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		context, ok := config.Contexts[name]
		if !ok {
			t.Fatalf("kubeconfig has no context %s", name)
		}
		unknown, ok := context.Extensions["fleetwatch.io/cluster"].(*runtime.Unknown)
		if !ok {
			t.Fatalf("context %s has extensions %v", name, context.Extensions)
		}
		var extension struct{ Environment string }
		if err := json.Unmarshal(unknown.Raw, &extension); err != nil || extension.Environment != "testbed" {
			t.Errorf("extension is %s (%v)", unknown.Raw, err)
		}
		if _, err := clientcmd.NewNonInteractiveClientConfig(*config, name, nil, nil).ClientConfig(); err != nil {
			t.Errorf("context %s: %v", name, err)
		}
	}
	if info, err := os.Stat(o.Kubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig has mode %v (%v), want 0600", info.Mode(), err)
	}
}
