package snapshot

import "time"

// Resource names one thing that Collect reads. Checks declare what they read
// in these words, and Snapshot.Reads is keyed by them.
type Resource string

// What is read of a cluster.
const (
	Version           Resource = "version"
	Readyz            Resource = "readyz"
	Livez             Resource = "livez"
	APIServerMetrics  Resource = "apiserver-metrics"
	APIServerReplicas Resource = "apiserver-replicas"
	ServingCert       Resource = "serving-certificate"
	Kubeconfig        Resource = "kubeconfig"
	ControlPlane      Resource = "control-plane-probes"
	EtcdMetrics       Resource = "etcd-metrics"
	Nodes             Resource = "nodes"
	Pods              Resource = "pods"
	Deployments       Resource = "deployments"
	StatefulSets      Resource = "statefulsets"
	DaemonSets        Resource = "daemonsets"
	Jobs              Resource = "jobs"
	CronJobs          Resource = "cronjobs"
	Services          Resource = "services"
	EndpointSlices    Resource = "endpointslices"
	PVCs              Resource = "persistentvolumeclaims"
	PVs               Resource = "persistentvolumes"
	PDBs              Resource = "poddisruptionbudgets"
	HPAs              Resource = "horizontalpodautoscalers"
	Namespaces        Resource = "namespaces"
	SystemLeases      Resource = "leases in kube-system"
	NodeLeases        Resource = "leases in kube-node-lease"
	ValidatingHooks   Resource = "validatingwebhookconfigurations"
	MutatingHooks     Resource = "mutatingwebhookconfigurations"
	APIServices       Resource = "apiservices"
	CSRs              Resource = "certificatesigningrequests"
	Quotas            Resource = "resourcequotas"
)

// AllReads lists every Resource.
func AllReads() []Resource {
	return []Resource{
		Version, Readyz, Livez, APIServerMetrics, APIServerReplicas, ServingCert, Kubeconfig, ControlPlane, EtcdMetrics,
		Nodes, Pods, Deployments, StatefulSets, DaemonSets, Jobs, CronJobs, Services, EndpointSlices, PVCs, PVs,
		PDBs, HPAs, Namespaces, SystemLeases, NodeLeases, ValidatingHooks, MutatingHooks, APIServices, CSRs, Quotas,
	}
}

// Snapshot is one read of one cluster. Treat it as read-only: the checks share it.
type Snapshot struct {
	Cluster string `json:"cluster"`
	// Server is the API server's address, without user information.
	Server   string    `json:"server"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// ClockSkew is the cluster's clock minus ours, 0 when within two seconds.
	ClockSkew time.Duration `json:"clock_skew_ns,omitempty"`
	// Unreachable says why nothing could be read; nil when the API answered.
	Unreachable *Problem `json:"unreachable,omitempty"`
	// Reads has an entry for every Resource that was tried.
	Reads map[Resource]Read `json:"reads"`

	KubernetesVersion string        `json:"kubernetes_version,omitempty"`
	Readyz            *HealthReport `json:"readyz,omitempty"`
	Livez             *HealthReport `json:"livez,omitempty"`
	// Serving are the certificates that API server endpoints present.
	Serving []ServingCertificate `json:"serving,omitempty"`
	// ClientCertificate is that of our own kubeconfig, nil when it has none.
	ClientCertificate *Certificate `json:"client_certificate,omitempty"`
	// Authorities are the CA certificates of our own kubeconfig.
	Authorities []Certificate `json:"authorities,omitempty"`
	// Probes are the health answers of control plane static pods.
	Probes []Probe `json:"probes,omitempty"`
	// Scrapes are the declared metric families of API server and etcd members.
	Scrapes []Scrape `json:"scrapes,omitempty"`

	Nodes          []Node          `json:"nodes,omitempty"`
	Pods           []Pod           `json:"pods,omitempty"`
	Workloads      []Workload      `json:"workloads,omitempty"`
	Jobs           []Job           `json:"jobs,omitempty"`
	CronJobs       []CronJob       `json:"cronjobs,omitempty"`
	Services       []Service       `json:"services,omitempty"`
	EndpointSlices []EndpointSlice `json:"endpointslices,omitempty"`
	PVCs           []PVC           `json:"persistentvolumeclaims,omitempty"`
	PVs            []PV            `json:"persistentvolumes,omitempty"`
	PDBs           []PDB           `json:"poddisruptionbudgets,omitempty"`
	HPAs           []HPA           `json:"horizontalpodautoscalers,omitempty"`
	Namespaces     []Namespace     `json:"namespaces,omitempty"`
	Leases         []Lease         `json:"leases,omitempty"`
	Webhooks       []Webhook       `json:"webhooks,omitempty"`
	APIServices    []APIService    `json:"apiservices,omitempty"`
	CSRs           []CSR           `json:"certificatesigningrequests,omitempty"`
	Quotas         []Quota         `json:"resourcequotas,omitempty"`
}

// Read tells how one read went.
type Read struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took_ns"`
	// Items is how many objects, endpoints or samples were kept.
	Items int `json:"items"`
	// Problem is nil when the read is complete.
	Problem *Problem `json:"problem,omitempty"`
}

// Reason is a bounded set of causes why a read failed.
type Reason string

// Why a read failed.
const (
	ReasonForbidden    Reason = "forbidden"
	ReasonUnauthorized Reason = "unauthorized"
	ReasonNotFound     Reason = "not_found"
	ReasonTimeout      Reason = "timeout"
	ReasonRefused      Reason = "connection_refused"
	ReasonDNS          Reason = "dns"
	ReasonNetwork      Reason = "network"
	ReasonTLS          Reason = "tls"
	ReasonThrottled    Reason = "throttled"
	ReasonServerError  Reason = "server_error"
	ReasonMalformed    Reason = "malformed_answer"
	ReasonExpired      Reason = "list_expired"
	ReasonTooMany      Reason = "too_many"
	ReasonConfig       Reason = "configuration"
	ReasonOther        Reason = "error"
)

// Problem is why something could not be read.
type Problem struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

func (p *Problem) String() string {
	if p == nil {
		return ""
	}
	return string(p.Reason) + ": " + p.Message
}

// HealthReport is the answer of /readyz?verbose or /livez?verbose.
type HealthReport struct {
	OK     bool          `json:"ok"`
	Status int           `json:"status"`
	Checks []HealthCheck `json:"checks,omitempty"`
}

// HealthCheck is one line of a verbose health answer.
type HealthCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

// Certificate is what is kept of an X.509 certificate.
type Certificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Serial    string    `json:"serial"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// ServingCertificate is the leaf that one API server endpoint presents.
type ServingCertificate struct {
	Endpoint string       `json:"endpoint"`
	Leaf     *Certificate `json:"leaf,omitempty"`
	Problem  *Problem     `json:"problem,omitempty"`
}

// Probe is the health answer of one control plane static pod.
type Probe struct {
	// Component is kube-apiserver, kube-controller-manager, kube-scheduler or etcd.
	Component string `json:"component"`
	Pod       string `json:"pod"`
	Host      string `json:"host"`
	URL       string `json:"url"`
	// NodeLocal is true when the pod says that it answers health questions
	// only on its own node's loopback, and that node is not this machine.
	NodeLocal bool   `json:"node_local,omitempty"`
	OK        bool   `json:"ok"`
	Status    int    `json:"status,omitempty"`
	Body      string `json:"body,omitempty"`
	// Problem is why there was no answer; nil when there was one, good or bad.
	Problem *Problem `json:"problem,omitempty"`
}

// Scrape is one or two reads of an endpoint's /metrics. Counters are compared
// between the two; Second is nil when only one was possible.
type Scrape struct {
	Component string   `json:"component"`
	Instance  string   `json:"instance"`
	NodeLocal bool     `json:"node_local,omitempty"`
	First     *Samples `json:"first,omitempty"`
	Second    *Samples `json:"second,omitempty"`
	Problem   *Problem `json:"problem,omitempty"`
}

// Samples are the declared families of one answer, already aggregated.
type Samples struct {
	At     time.Time `json:"at"`
	Values []Sample  `json:"values"`
}

// Sample is one aggregated series.
type Sample struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value"`
}
