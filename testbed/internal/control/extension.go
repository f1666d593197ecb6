package control

import "k8s.io/apimachinery/pkg/runtime"

// rawExtension is a kubeconfig extension with the given JSON as its content.
func rawExtension(json string) runtime.Object {
	return &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(json)}
}
