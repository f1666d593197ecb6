package collector

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The names under which Prometheus' discovery looks into the informers that it
// is given.
const (
	indexNode       = "node"
	indexPod        = "pod"
	indexService    = "service"
	indexReplicaSet = "replicaset"
	indexJob        = "job"
)

func indexPodByNode(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// indexPodByOwner finds the pods of a controller of the given kind.
func indexPodByOwner(kind string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == kind {
			return []string{pod.Namespace + "/" + owner.Name}, nil
		}
		return nil, nil
	}
}

func indexSliceByService(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

func indexSliceByNode(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	var nodes []string
	for _, e := range slice.Endpoints {
		nodes = appendNode(nodes, e.TargetRef, e.NodeName)
	}
	return nodes, nil
}

//nolint:staticcheck // role endpoints is genuine scrape_configs syntax
func indexEndpointsByPod(obj any) ([]string, error) {
	endpoints, ok := obj.(*corev1.Endpoints)
	if !ok {
		return nil, nil
	}
	var pods []string
	for _, subset := range endpoints.Subsets {
		for _, a := range subset.Addresses {
			if a.TargetRef != nil && a.TargetRef.Kind == "Pod" {
				pods = append(pods, a.TargetRef.Namespace+"/"+a.TargetRef.Name)
			}
		}
	}
	return pods, nil
}

//nolint:staticcheck // role endpoints is genuine scrape_configs syntax
func indexEndpointsByNode(obj any) ([]string, error) {
	endpoints, ok := obj.(*corev1.Endpoints)
	if !ok {
		return nil, nil
	}
	var nodes []string
	for _, subset := range endpoints.Subsets {
		for _, a := range subset.Addresses {
			nodes = appendNode(nodes, a.TargetRef, a.NodeName)
		}
	}
	return nodes, nil
}

func appendNode(nodes []string, ref *corev1.ObjectReference, node *string) []string {
	switch {
	case ref == nil:
	case ref.Kind == "Node":
		return append(nodes, ref.Name)
	case ref.Kind == "Pod" && node != nil:
		return append(nodes, *node)
	}
	return nodes
}
