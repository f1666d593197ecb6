package snapshot

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Meta is what is kept of every object's metadata.
type Meta struct {
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Created   time.Time         `json:"created"`
	// Deleted is when deletion was asked for, nil when it was not.
	Deleted *time.Time `json:"deleted,omitempty"`
}

// Owner is the controlling owner of an object.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Condition is a status condition; Heartbeat is set on nodes only.
type Condition struct {
	Type      string    `json:"type"`
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Changed   time.Time `json:"changed,omitzero"`
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// Node is a core/v1 Node.
type Node struct {
	Meta
	Unschedulable bool        `json:"unschedulable,omitempty"`
	CordonNote    string      `json:"cordon_note,omitempty"`
	Taints        []Taint     `json:"taints,omitempty"`
	Conditions    []Condition `json:"conditions,omitempty"`
	Allocatable   Resources   `json:"allocatable"`
	PodCIDRs      []string    `json:"pod_cidrs,omitempty"`
	Kubelet       string      `json:"kubelet_version,omitempty"`
}

// Taint is a node taint.
type Taint struct {
	Key    string     `json:"key"`
	Effect string     `json:"effect"`
	Added  *time.Time `json:"added,omitempty"`
}

// Resources are amounts that the scheduler counts.
type Resources struct {
	CPUMilli int64 `json:"cpu_milli"`
	Memory   int64 `json:"memory_bytes"`
	Pods     int64 `json:"pods,omitempty"`
}

// Pod is a core/v1 Pod.
type Pod struct {
	Meta
	Owner       *Owner      `json:"owner,omitempty"`
	Node        string      `json:"node,omitempty"`
	Phase       string      `json:"phase"`
	Reason      string      `json:"reason,omitempty"`
	HostNetwork bool        `json:"host_network,omitempty"`
	Static      bool        `json:"static,omitempty"`
	Requests    Resources   `json:"requests"`
	Grace       int64       `json:"grace_seconds,omitempty"`
	Ready       *Condition  `json:"ready,omitempty"`
	Scheduled   *Condition  `json:"scheduled,omitempty"`
	Claims      []string    `json:"claims,omitempty"`
	Containers  []Container `json:"containers,omitempty"`
	// Component holds what is needed to probe a control plane static pod.
	Component *Component `json:"component,omitempty"`
}

// Container is the status of one container of a pod.
type Container struct {
	Name     string `json:"name"`
	Init     bool   `json:"init,omitempty"`
	Restarts int32  `json:"restarts,omitempty"`
	Ready    bool   `json:"ready,omitempty"`
	// Waiting is the waiting reason, empty when the container is not waiting.
	Waiting string     `json:"waiting,omitempty"`
	Running *time.Time `json:"running_since,omitempty"`
	// Exit is how the container ended, when it has ended and is not running.
	Exit *Exit `json:"exit,omitempty"`
	// LastExit is how the run before this one ended.
	LastExit *Exit `json:"last_exit,omitempty"`
}

// Exit is the end of one run of a container.
type Exit struct {
	Code     int32     `json:"code"`
	Reason   string    `json:"reason,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
}

// Component is the probe address and the few flags of a control plane static pod.
type Component struct {
	Name      string `json:"name"`
	PodIP     string `json:"pod_ip,omitempty"`
	ProbeHost string `json:"probe_host,omitempty"`
	Scheme    string `json:"scheme,omitempty"`
	Port      int32  `json:"port,omitempty"`
	Path      string `json:"path,omitempty"`
	// QuotaBytes is etcd's --quota-backend-bytes, 0 when the flag is absent.
	QuotaBytes int64 `json:"quota_bytes,omitempty"`
	// NoLeaderElection is true with --leader-elect=false.
	NoLeaderElection bool `json:"no_leader_election,omitempty"`
}

// Kinds of Workload.
const (
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)

// Workload is a Deployment, StatefulSet or DaemonSet.
type Workload struct {
	Meta
	Kind           string                `json:"kind"`
	Desired        int32                 `json:"desired"`
	Ready          int32                 `json:"ready"`
	Available      int32                 `json:"available"`
	Updated        int32                 `json:"updated"`
	Paused         bool                  `json:"paused,omitempty"`
	Selector       *metav1.LabelSelector `json:"selector,omitempty"`
	TemplateLabels map[string]string     `json:"template_labels,omitempty"`
	Conditions     []Condition           `json:"conditions,omitempty"`
}

// Job is a batch/v1 Job.
type Job struct {
	Meta
	Owner      *Owner      `json:"owner,omitempty"`
	Suspended  bool        `json:"suspended,omitempty"`
	Active     int32       `json:"active,omitempty"`
	Started    *time.Time  `json:"started,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// CronJob is a batch/v1 CronJob.
type CronJob struct {
	Meta
	Suspended bool `json:"suspended,omitempty"`
}

// Service is a core/v1 Service.
type Service struct {
	Meta
	Type     string            `json:"type"`
	Selector map[string]string `json:"selector,omitempty"`
	// LoadBalancer is how many addresses the load balancer has been given.
	LoadBalancer int `json:"load_balancer,omitempty"`
}

// EndpointSlice is a discovery.k8s.io/v1 EndpointSlice.
type EndpointSlice struct {
	Meta
	Service   string     `json:"service,omitempty"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is one address of an EndpointSlice.
type Endpoint struct {
	Ready bool   `json:"ready"`
	Node  string `json:"node,omitempty"`
	// Target is the pod behind it, empty when there is none.
	Target string `json:"target,omitempty"`
}

// PVC is a core/v1 PersistentVolumeClaim.
type PVC struct {
	Meta
	Phase  string `json:"phase"`
	Volume string `json:"volume,omitempty"`
}

// PV is a core/v1 PersistentVolume.
type PV struct {
	Meta
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	Claim   string `json:"claim,omitempty"`
}

// PDB is a policy/v1 PodDisruptionBudget.
type PDB struct {
	Meta
	Allowed    int32       `json:"disruptions_allowed"`
	Healthy    int32       `json:"current_healthy"`
	Desired    int32       `json:"desired_healthy"`
	Expected   int32       `json:"expected_pods"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// HPA is an autoscaling/v2 HorizontalPodAutoscaler.
type HPA struct {
	Meta
	Target     Owner       `json:"target"`
	Min        int32       `json:"min"`
	Max        int32       `json:"max"`
	Current    int32       `json:"current"`
	Desired    int32       `json:"desired"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Namespace is a core/v1 Namespace.
type Namespace struct {
	Meta
	Phase      string      `json:"phase"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Lease is a coordination.k8s.io/v1 Lease.
type Lease struct {
	Meta
	Holder  string     `json:"holder,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
}

// Webhook is one webhook of an admission configuration.
type Webhook struct {
	// Kind is ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
	Kind          string `json:"kind"`
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	// Fail is true when a webhook that does not answer blocks the request.
	Fail bool `json:"fail"`
	// Service is namespace/name; empty when the webhook is called by URL.
	Service string `json:"service,omitempty"`
	// BundleExpires is the earliest end of the CA bundle, nil when it has none.
	BundleExpires *time.Time `json:"bundle_expires,omitempty"`
}

// APIService is an apiregistration.k8s.io/v1 APIService.
type APIService struct {
	Meta
	Service       string     `json:"service,omitempty"`
	Available     *Condition `json:"available,omitempty"`
	BundleExpires *time.Time `json:"bundle_expires,omitempty"`
}

// CSR is a certificates.k8s.io/v1 CertificateSigningRequest.
type CSR struct {
	Meta
	Signer    string `json:"signer"`
	Requester string `json:"requester"`
	// Pending is true while it is neither approved, denied nor failed.
	Pending bool `json:"pending"`
}

// Quota is a core/v1 ResourceQuota: what is used and allowed by resource.
type Quota struct {
	Meta
	Hard map[string]float64 `json:"hard,omitempty"`
	Used map[string]float64 `json:"used,omitempty"`
}
