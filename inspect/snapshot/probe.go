package snapshot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// probePods asks the control plane's static pods for their health, without
// any credential, and returns the etcd scrapes that can be repeated.
func (r *reader) probePods(ctx context.Context) []scraped {
	started := time.Now()
	if problem := r.snap.Reads[Pods].Problem; problem != nil {
		for _, resource := range []Resource{ControlPlane, APIServerReplicas, EtcdMetrics} {
			r.recordProblem(resource, started, problem)
		}
		return nil
	}
	client := directClient(r.options.ProbeTimeout)
	defer client.CloseIdleConnections()
	counts := map[Resource]int{}
	var group errgroup.Group
	group.SetLimit(concurrency)
	pods := r.snap.Pods
	members := make([]scraped, len(pods)) // one slot for each task, most unused
	for i := range pods {
		component := pods[i].Component
		if component == nil || pods[i].Phase == "Succeeded" || pods[i].Phase == "Failed" {
			continue
		}
		switch component.Name {
		case ComponentEtcd:
			counts[EtcdMetrics]++
			group.Go(func() error { members[i] = r.scrapeMember(ctx, client, &pods[i]); return nil })
			group.Go(func() error { r.probe(ctx, client, &pods[i], "/health"); return nil })
		case ComponentAPIServer:
			counts[APIServerReplicas]++
			group.Go(func() error { r.probe(ctx, client, &pods[i], "/readyz"); return nil })
		default:
			counts[ControlPlane]++
			group.Go(func() error { r.probe(ctx, client, &pods[i], "/healthz"); return nil })
		}
	}
	_ = group.Wait() // tasks record their errors and return none
	for _, resource := range []Resource{ControlPlane, APIServerReplicas, EtcdMetrics} {
		r.record(resource, started, counts[resource], nil)
	}
	var again []scraped
	for _, member := range members {
		if member.again != nil {
			again = append(again, member)
		}
	}
	return again
}

func (r *reader) recordProblem(resource Resource, started time.Time, problem *Problem) {
	r.record(resource, started, 0, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.snap.Reads[resource]
	read.Problem = &Problem{problem.Reason, "the pods could not be read: " + problem.Message}
	r.snap.Reads[resource] = read
}

// directClient talks to a pod itself. Components use self-signed serving
// certificates, so it verifies none: nothing secret is ever sent through it,
// and where there is an authority to check against, the caller does.
func directClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:       (&net.Dialer{Timeout: timeout}).DialContext,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// directURL is where a component answers. Link-local addresses are refused:
// a pod's status must not send this machine to a cloud's metadata service.
func directURL(component *Component, path string) (string, error) {
	address, err := netip.ParseAddr(component.PodIP)
	if err != nil || component.Port <= 0 || component.Port > 65535 {
		return "", fmt.Errorf("the pod names no address and port for probes (ip %q, port %d)", component.PodIP, component.Port)
	}
	if address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() {
		return "", fmt.Errorf("address %s is not asked: not a host address", address)
	}
	scheme := "http"
	if component.Scheme == "https" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(component.PodIP, strconv.Itoa(int(component.Port))) + path, nil
}

func (r *reader) probe(ctx context.Context, client *http.Client, pod *Pod, path string) {
	probe := Probe{Component: pod.Component.Name, Pod: pod.Name, Host: pod.Component.PodIP, NodeLocal: pod.Component.nodeLocal()}
	var leaf *x509.Certificate
	var err error
	if probe.URL, err = directURL(pod.Component, path); err == nil {
		err = direct(ctx, client, probe.URL, func(response *http.Response) error {
			body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
			probe.Status, probe.Body = response.StatusCode, shorten(string(body), messageLimit)
			probe.OK = response.StatusCode == http.StatusOK
			if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
				leaf = response.TLS.PeerCertificates[0]
			}
			return err
		})
	}
	if err == nil && leaf != nil && pod.Component.Name == ComponentAPIServer {
		err = r.verify(leaf)
	}
	probe.Problem = classify(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snap.Probes = append(r.snap.Probes, probe)
	if pod.Component.Name == ComponentAPIServer && leaf != nil {
		endpoint := net.JoinHostPort(pod.Component.PodIP, strconv.Itoa(int(pod.Component.Port)))
		serving := ServingCertificate{Endpoint: endpoint, Leaf: keepCertificate(leaf), Problem: classify(err)}
		if !slices.ContainsFunc(r.snap.Serving, func(known ServingCertificate) bool {
			return known.Endpoint == endpoint && known.Leaf != nil && *known.Leaf == *serving.Leaf
		}) {
			r.snap.Serving = append(r.snap.Serving, serving)
		}
	}
}

// verify checks that a replica's certificate comes from the cluster's own
// authority. The name does not matter: the replica is asked by its address.
func (r *reader) verify(leaf *x509.Certificate) error {
	if r.roots == nil {
		return nil
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: r.roots}); err != nil {
		return fmt.Errorf("verify the serving certificate: %w", err)
	}
	return nil
}

func (r *reader) scrapeMember(ctx context.Context, client *http.Client, pod *Pod) scraped {
	scrape := Scrape{Component: ComponentEtcd, Instance: pod.Name, NodeLocal: pod.Component.nodeLocal()}
	fetch := func(ctx context.Context) (*Samples, error) {
		address, err := directURL(pod.Component, "/metrics")
		if err != nil {
			return nil, err
		}
		var samples *Samples
		err = direct(ctx, client, address, func(response *http.Response) (err error) {
			if response.StatusCode != http.StatusOK {
				return statusError(response.StatusCode)
			}
			samples, err = parseMetrics(&bounded{response.Body, largeBody}, etcdFamilies, time.Now())
			return err
		})
		return samples, err
	}
	samples, err := fetch(ctx)
	scrape.First, scrape.Problem = samples, classify(err)
	return r.addScrape(scrape, time.Now(), fetch)
}

func direct(ctx context.Context, client *http.Client, address string, read func(*http.Response) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return read(response)
}
