package content

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/control"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

// Mirror is a real process and the static pod that stands for it.
type Mirror struct {
	Process string // name of the child process
	Pod     *corev1.Pod
}

// component describes a static pod of kubeadm's kind.
type component struct {
	name        string // component label and container name
	process     string
	node        layout.Node
	image       string
	args        []string
	probePort   int
	probeScheme corev1.URIScheme
	cpu         string
	memory      string
	annotations map[string]string
}

// ProcessName is the name of instance i of a component among the child processes.
func ProcessName(component string, i int) string { return fmt.Sprintf("%s-%d", component, i) }

// Names of the control plane's components.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Mirrors are the static pods of the cluster's control plane.
func Mirrors(c layout.Cluster) []Mirror {
	var out []Mirror
	for i := range c.Options().EtcdMembers {
		out = append(out, mirror(component{
			name: Etcd, process: ProcessName(Etcd, i), node: c.ControlPlaneNode(i),
			image: "registry.k8s.io/etcd:3.7.0-0", args: control.Etcd(c, i),
			probePort: c.EtcdMetricsPort(i), probeScheme: corev1.URISchemeHTTP, cpu: "100m", memory: "100Mi",
			annotations: map[string]string{"kubeadm.kubernetes.io/etcd.advertise-client-urls": control.EtcdURL(c, i)},
		}))
	}
	for i := range c.Options().APIServers {
		out = append(out, mirror(component{
			name: APIServer, process: ProcessName(APIServer, i), node: c.ControlPlaneNode(i),
			image: "registry.k8s.io/kube-apiserver:" + KubernetesVersion, args: control.APIServer(c, i),
			probePort: c.APIServerPort(i), probeScheme: corev1.URISchemeHTTPS, cpu: "250m", memory: "256Mi",
			annotations: map[string]string{
				"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": fmt.Sprintf("127.0.0.1:%d", c.APIServerPort(i)),
			},
		}))
	}
	out = append(out,
		mirror(component{
			name: ControllerManager, process: ControllerManager, node: c.ControlPlaneNode(0),
			image: "registry.k8s.io/kube-controller-manager:" + KubernetesVersion, args: control.ControllerManager(c),
			probePort: c.ControllerPort(), probeScheme: corev1.URISchemeHTTPS, cpu: "200m", memory: "128Mi",
		}),
		mirror(component{
			name: Scheduler, process: Scheduler, node: c.ControlPlaneNode(0),
			image: "registry.k8s.io/kube-scheduler:" + KubernetesVersion, args: control.Scheduler(c),
			probePort: c.SchedulerPort(), probeScheme: corev1.URISchemeHTTPS, cpu: "100m", memory: "64Mi",
		}))
	return out
}

func mirror(d component) Mirror {
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(d.node.Name+"\n"+strings.Join(d.args, "\n"))))[:32]
	annotations := map[string]string{
		"kubernetes.io/config.mirror": hash,
		"kubernetes.io/config.hash":   hash,
		"kubernetes.io/config.source": "file",
	}
	maps.Copy(annotations, d.annotations)
	probe := func(path string, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Host: "127.0.0.1", Path: path, Port: intstr.FromString("probe-port"), Scheme: d.probeScheme,
			}},
			InitialDelaySeconds: 10, PeriodSeconds: 10, TimeoutSeconds: 15, FailureThreshold: failures, SuccessThreshold: 1,
		}
	}
	live, ready := "/livez", "/readyz"
	if d.name == ControllerManager {
		live, ready = "/healthz", "/healthz"
	}
	priority := int32(2000001000)
	grace := int64(30)
	return Mirror{Process: d.process, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.name + "-" + d.node.Name, Namespace: metav1.NamespaceSystem,
			Labels:      map[string]string{"component": d.name, "tier": "control-plane", LabelProcess: d.process},
			Annotations: annotations,
		},
		Spec: corev1.PodSpec{
			NodeName: d.node.Name, HostNetwork: true,
			PriorityClassName: "system-node-critical", Priority: &priority,
			TerminationGracePeriodSeconds: &grace,
			Tolerations:                   []corev1.Toleration{{Effect: corev1.TaintEffectNoExecute, Operator: corev1.TolerationOpExists}},
			SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: d.name, Image: d.image, Command: append([]string{d.name}, d.args...),
				ImagePullPolicy: corev1.PullIfNotPresent,
				Ports: []corev1.ContainerPort{{
					Name: "probe-port", ContainerPort: int32(d.probePort), HostPort: int32(d.probePort), Protocol: corev1.ProtocolTCP,
				}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(d.cpu), corev1.ResourceMemory: resource.MustParse(d.memory),
				}},
				StartupProbe:   probe(live, 24),
				LivenessProbe:  probe(live, 8),
				ReadinessProbe: probe(ready, 3),
			}},
		},
	}}
}
