package content

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// shopApp is one Deployment of the demo shop.
type shopApp struct {
	Name     string
	Replicas int
	CPU      string
	Memory   string
}

// values fill the manifests.
type values struct {
	KSMPort, KSMTelemetryPort int
	AppPort, AppServicePort   int
	DNSPort, DNSMetricsPort   int
	DNSHealthPort             int
	DNSReadyPort              int
	DNSAddresses              []string
	NodeExporterPort          int
	APIServerPorts            []int
	Shop                      []shopApp
	ControlPlane              string
	DNSService                string
	Corefile                  string // indented for a block of YAML
}

func valuesOf(c layout.Cluster) values {
	v := values{
		KSMPort: c.KSMPort(), KSMTelemetryPort: c.KSMTelemetryPort(),
		AppPort: c.AppPort(), AppServicePort: c.AppServicePort(),
		DNSPort: c.DNSPort(), DNSMetricsPort: c.DNSMetricsPort(),
		DNSHealthPort: c.DNSHealthPort(), DNSReadyPort: c.DNSReadyPort(),
		NodeExporterPort: c.NodeExporterPort(), ControlPlane: c.ControlPlaneNode(0).Name,
		DNSService: layout.DNSService,
		Corefile:   "    " + strings.ReplaceAll(strings.TrimSpace(Corefile(c)), "\n", "\n    "),
		Shop: []shopApp{
			{"frontend", 6, "140m", "96Mi"},
			{"cart", 4, "60m", "88Mi"},
			{"catalog", 4, "75m", "110Mi"},
			{"checkout", 3, "45m", "92Mi"},
			{"payments", 2, "20m", "70Mi"},
		},
	}
	for i := range layout.DNSReplicas {
		v.DNSAddresses = append(v.DNSAddresses, c.DNSAddress(i))
	}
	for i := range c.Options().APIServers {
		v.APIServerPorts = append(v.APIServerPorts, c.APIServerPort(i))
	}
	return v
}

// Manifests returns the objects of the named files, filled in for the cluster.
func Manifests(c layout.Cluster, files ...string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, name := range files {
		text, err := fs.ReadFile(manifests, "manifests/"+name+".yaml")
		if err != nil {
			return nil, err
		}
		objects, err := render(name, string(text), valuesOf(c))
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

func render(name, text string, v values) ([]*unstructured.Unstructured, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := t.Execute(&buf, v); err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(&buf, 4096); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode manifest %s: %w", name, err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// resources are the kinds that manifests may hold, with their resource names;
// true means namespaced.
var resources = map[string]struct {
	name       string
	namespaced bool
}{
	"Namespace":             {"namespaces", false},
	"ServiceAccount":        {"serviceaccounts", true},
	"ClusterRole":           {"clusterroles", false},
	"ClusterRoleBinding":    {"clusterrolebindings", false},
	"Service":               {"services", true},
	"EndpointSlice":         {"endpointslices", true},
	"Deployment":            {"deployments", true},
	"StatefulSet":           {"statefulsets", true},
	"DaemonSet":             {"daemonsets", true},
	"Job":                   {"jobs", true},
	"CronJob":               {"cronjobs", true},
	"PodDisruptionBudget":   {"poddisruptionbudgets", true},
	"StorageClass":          {"storageclasses", false},
	"PersistentVolume":      {"persistentvolumes", false},
	"PersistentVolumeClaim": {"persistentvolumeclaims", true},
	"Pod":                   {"pods", true},
	"ConfigMap":             {"configmaps", true},
}

// resourceOf finds the API resource of an object.
func resourceOf(u *unstructured.Unstructured) (schema.GroupVersionResource, bool, error) {
	r, ok := resources[u.GetKind()]
	if !ok {
		return schema.GroupVersionResource{}, false, fmt.Errorf("apply %s: kind is not in the table of resources", u.GetKind())
	}
	return u.GroupVersionKind().GroupVersion().WithResource(r.name), r.namespaced, nil
}

// Apply writes the objects by server-side apply, one after the other.
func Apply(ctx context.Context, client dynamic.Interface, objects []*unstructured.Unstructured) error {
	for _, u := range objects {
		gvr, namespaced, err := resourceOf(u)
		if err != nil {
			return err
		}
		data, err := u.MarshalJSON()
		if err != nil {
			return err
		}
		var target dynamic.ResourceInterface = client.Resource(gvr)
		if namespaced {
			target = client.Resource(gvr).Namespace(u.GetNamespace())
		}
		force := true
		_, err = target.Patch(ctx, u.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
		if err != nil {
			return fmt.Errorf("apply %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	return nil
}

// APIServerSlice is the name of the EndpointSlice that points to API server i.
func APIServerSlice(i int) string { return fmt.Sprintf("kubernetes-testbed-%d", i) }

// Known says whether Apply can write an object of this kind.
func Known(u *unstructured.Unstructured) error {
	_, _, err := resourceOf(u)
	return err
}
