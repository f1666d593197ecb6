package collector

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// What an API server may answer. Without bounds one that lies, or that is none,
// takes all memory: client-go reads answers and watch events whole.
const (
	// pageSize is how many objects one answer to a list holds.
	pageSize  = 500
	maxAnswer = 64 << 20
	// maxEvent bounds a watch event in JSON; client-go has the same bound for
	// the events in protobuf.
	maxEvent = 16 << 20
	// maxObjects and maxObjectBytes bound what one watch keeps of a cluster.
	maxObjects     = 200_000
	maxObjectBytes = 512 << 20
)

// boundAnswers ends an answer that is longer than the bounds with an error.
func boundAnswers(cluster string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return boundTransport{next, cluster} }
}

type boundTransport struct {
	next    http.RoundTripper
	cluster string
}

func (t boundTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch {
	case !isWatch(req) || resp.StatusCode != http.StatusOK:
		resp.Body = &answerBody{ReadCloser: resp.Body, left: maxAnswer, err: fmt.Errorf(
			"cluster %s answers %s with more than %d MiB, the most that is read; is it a Kubernetes API server?", t.cluster, req.URL.Path, maxAnswer>>20)}
	case !strings.Contains(resp.Header.Get("Content-Type"), "protobuf"):
		resp.Body = &eventBody{ReadCloser: resp.Body, err: fmt.Errorf(
			"cluster %s sends a watch event of more than %d MiB at %s, the most that is read; is it a Kubernetes API server?", t.cluster, maxEvent>>20, req.URL.Path)}
	}
	return resp, nil
}

func isWatch(req *http.Request) bool {
	switch req.URL.Query().Get("watch") {
	case "", "0", "false":
		return false
	}
	return true
}

type answerBody struct {
	io.ReadCloser
	left int
	err  error
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// eventBody follows the nesting of a stream of JSON values, for that alone
// tells where one ends.
type eventBody struct {
	io.ReadCloser
	err             error
	depth, size     int
	quoted, escaped bool
}

func (b *eventBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.size++
		switch {
		case b.escaped:
			b.escaped = false
		case b.quoted:
			b.escaped, b.quoted = c == '\\', c != '"'
		case c == '"':
			b.quoted = true
		case c == '{' || c == '[':
			b.depth++
		case c == '}' || c == ']':
			if b.depth--; b.depth <= 0 {
				b.depth, b.size = 0, 0
			}
		}
		if b.size > maxEvent {
			return 0, b.err
		}
	}
	return n, err
}

// census counts what one informer keeps.
type census struct {
	what string

	mu             sync.Mutex
	objects, bytes int
}

func (c *census) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.bytes = 0, 0
}

func (c *census) count(o runtime.Object, sign int) error {
	size := 0
	if s, ok := o.(interface{ Size() int }); ok {
		size = s.Size()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects += sign
	c.bytes += sign * size
	if c.objects > maxObjects || c.bytes > maxObjectBytes {
		return fmt.Errorf("more than %d %s or %d MiB of them, the most that a collector keeps; restrict the discovery to namespaces or labels",
			maxObjects, c.what, maxObjectBytes>>20)
	}
	return nil
}

// page strips and counts the objects of one page.
func (c *census) page(list runtime.Object) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		o, err := stripped(o)
		if err != nil {
			return err
		}
		return c.count(o, 1)
	})
}

// stripped is o without what is not kept. What o points to is stripped too, so
// that a page of a list does not hold on to it.
func stripped(o runtime.Object) (runtime.Object, error) {
	short, err := strip(o)
	if err != nil {
		return nil, err
	}
	switch o := o.(type) {
	case *corev1.Pod:
		*o = *short.(*corev1.Pod)
	case *corev1.Node:
		*o = *short.(*corev1.Node)
	}
	return o, nil
}

// countedWatch passes events, stripped, and ends with an error when they are
// too many.
type countedWatch struct {
	watch.Interface
	events chan watch.Event // closed by run
	done   chan struct{}    // closed by Stop
	once   sync.Once
}

func countEvents(in watch.Interface, c *census, failed func(error)) watch.Interface {
	w := &countedWatch{Interface: in, events: make(chan watch.Event), done: make(chan struct{})}
	go w.run(c, failed)
	return w
}

func (w *countedWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *countedWatch) Stop() {
	w.once.Do(func() { close(w.done) })
	w.Interface.Stop()
}

func (w *countedWatch) run(c *census, failed func(error)) {
	defer close(w.events)
	for {
		select {
		case <-w.done:
			return
		case e, ok := <-w.Interface.ResultChan():
			if !ok {
				return
			}
			err := c.event(e)
			if err != nil {
				failed(err)
				status := apierrors.NewRequestEntityTooLargeError(err.Error()).ErrStatus
				e = watch.Event{Type: watch.Error, Object: &status}
			}
			select {
			case <-w.done:
				return
			case w.events <- e:
			}
			if err != nil {
				return
			}
		}
	}
}

func (c *census) event(e watch.Event) error {
	if e.Type != watch.Added && e.Type != watch.Modified && e.Type != watch.Deleted {
		return nil
	}
	if _, err := stripped(e.Object); err != nil {
		return err
	}
	if e.Type == watch.Added {
		return c.count(e.Object, 1)
	}
	if e.Type == watch.Deleted {
		_ = c.count(e.Object, -1) // fewer are never too many
	}
	return nil
}
