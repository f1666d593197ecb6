package content

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

// KubernetesVersion is what the control plane and the nodes say they are.
const KubernetesVersion = "v1.37.2"

// machine is the size of a node.
type machine struct {
	kind     string
	cpu      int64
	memoryGi int64
	diskGi   int64
}

var (
	controlPlaneMachine = machine{"standard-4", 4, 16, 80}
	workerMachines      = [...]machine{{"standard-8", 8, 32, 160}, {"standard-8", 8, 32, 160}, {"highmem-8", 8, 64, 160}, {"standard-16", 16, 64, 320}}
)

// Node is the Node object as a kubelet registers it: KWOK adds the conditions.
func Node(c layout.Cluster, n layout.Node) *corev1.Node {
	m := workerMachines[n.Index%len(workerMachines)]
	if n.ControlPlane {
		m = controlPlaneMachine
	}
	labels := map[string]string{
		corev1.LabelHostname:           n.Name,
		corev1.LabelOSStable:           "linux",
		corev1.LabelArchStable:         "amd64",
		corev1.LabelInstanceTypeStable: m.kind,
		corev1.LabelTopologyRegion:     "lab",
		corev1.LabelTopologyZone:       n.Zone,
		LabelHeartbeat:                 HeartbeatOn,
	}
	var taints []corev1.Taint
	if n.ControlPlane {
		labels["node-role.kubernetes.io/control-plane"] = ""
		taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	} else {
		labels["node-role.kubernetes.io/worker"] = ""
	}
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(n.Name)))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Labels: labels,
			Annotations: map[string]string{"node.alpha.kubernetes.io/ttl": "0"},
		},
		Spec: corev1.NodeSpec{Taints: taints, ProviderID: "testbed://" + c.Name + "/" + n.Zone + "/" + n.Name},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.IP},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(c.KubeletPort())}},
			Capacity:        m.resources(0, 0),
			Allocatable:     m.resources(80, 512),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: id[:32], SystemUUID: uuid(id), BootID: uuid(id[16:]),
				KernelVersion: "6.12.43", OSImage: "Debian GNU/Linux 13 (trixie)",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: KubernetesVersion,
				OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
}

func uuid(hex string) string {
	return hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:32]
}

// resources is the machine less what is reserved for the system.
func (m machine) resources(reservedMilliCPU, reservedMi int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(m.cpu*1000-reservedMilliCPU, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity((m.memoryGi*1024-reservedMi)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.diskGi<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
	}
}
