package fleet

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

const (
	// maxAnswer bounds one answer of an API server, other than a watch: client-go
	// reads answers whole, and one that lies must not take the memory of a
	// process that serves every cluster. Room for a page of 500 objects of half a
	// MiB each; the largest object that etcd stores has 1.5 MiB.
	maxAnswer = 256 << 20
	// maxLookAnswer bounds the answers to Look, a version and one Node.
	maxLookAnswer = 4 << 20
)

// bound makes every answer but a watch end with an error after max bytes.
func bound(config *rest.Config, cluster string, maximum int64) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return boundTransport{next, cluster, maximum}
	})
}

type boundTransport struct {
	next    http.RoundTripper
	cluster string
	maximum int64
}

func (t boundTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if watch := req.URL.Query().Get("watch"); watch != "" && watch != "0" && watch != "false" {
		return resp, nil
	}
	resp.Body = &boundBody{ReadCloser: resp.Body, left: t.maximum, transport: t, path: req.URL.Path}
	return resp, nil
}

type boundBody struct {
	io.ReadCloser
	left      int64
	transport boundTransport
	path      string
}

func (b *boundBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("cluster %s answers %s with more than %d MiB, which is no sane answer; is it a Kubernetes API server?", b.transport.cluster, b.path, b.transport.maximum>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
