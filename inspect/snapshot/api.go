package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// Bounds of answers that are not lists.
const (
	smallBody  = 1 << 20
	largeBody  = 16 << 20
	metricBody = 128 << 20
)

// get asks the API server for a path that is not a typed API and hands the
// answer, of any status, to read. The body is cut off at limit.
func (r *reader) get(ctx context.Context, path, accept string, limit int64, read func(*http.Response, io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.RequestTimeout)
	defer cancel()
	address := *r.base
	address.Path = joinPath(address.Path, path)
	address.RawQuery = ""
	if path == "/readyz" || path == "/livez" {
		address.RawQuery = "verbose"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", accept)
	response, err := r.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := read(response, &bounded{r: response.Body, left: limit}); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

func joinPath(prefix, path string) string {
	for len(prefix) > 0 && prefix[len(prefix)-1] == '/' {
		prefix = prefix[:len(prefix)-1]
	}
	return prefix + path
}

// bounded reads up to its bound and then fails, so that a cut is an error.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: the answer is too long", errMalformed)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}

// readVersion finds out whether the cluster answers at all, and with it the
// clock skew and the serving certificate. A returned Problem ends the collection.
func (r *reader) readVersion(ctx context.Context) *Problem {
	started := time.Now()
	var info version.Info
	var handshake *tls.ConnectionState
	err := r.get(ctx, "/version", "application/json", smallBody, func(response *http.Response, body io.Reader) error {
		handshake = response.TLS
		r.snap.ClockSkew = skew(response.Header.Get("Date"), started, time.Now())
		if response.StatusCode != http.StatusOK {
			return statusError(response.StatusCode)
		}
		if err := json.NewDecoder(body).Decode(&info); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		if info.GitVersion == "" {
			return fmt.Errorf("%w: no gitVersion, so it is not from a Kubernetes API", errMalformed)
		}
		return nil
	})
	r.record(Version, started, 1, err)
	r.snap.KubernetesVersion = info.GitVersion
	r.keepServing(started, handshake, err)
	if err == nil {
		return nil
	}
	problem := classify(err)
	switch problem.Reason {
	case ReasonForbidden, ReasonNotFound, ReasonThrottled, ReasonServerError:
		return nil // it answers: the lists may well work
	default:
		return problem
	}
}

// keepServing keeps the certificate of the handshake, good or bad.
func (r *reader) keepServing(started time.Time, handshake *tls.ConnectionState, err error) {
	serving := ServingCertificate{Endpoint: r.base.Host}
	switch {
	case handshake != nil && len(handshake.PeerCertificates) > 0:
		serving.Leaf = keepCertificate(handshake.PeerCertificates[0])
	case unverified(err) != nil:
		serving.Leaf = keepCertificate(unverified(err))
	case r.base.Scheme != "https":
		r.record(ServingCert, started, 0, nil)
		return
	default:
		r.record(ServingCert, started, 0, errors.Join(errors.New("no handshake with "+r.base.Host), err))
		return
	}
	r.snap.Serving = append(r.snap.Serving, serving)
	r.record(ServingCert, started, 1, nil)
}

// skew is the server's clock minus ours. The Date header counts whole seconds.
func skew(header string, sent, received time.Time) time.Duration {
	date, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	middle := sent.Add(received.Sub(sent) / 2)
	difference := date.Add(500 * time.Millisecond).Sub(middle)
	if difference.Abs() <= 2*time.Second+received.Sub(sent) {
		return 0
	}
	return difference.Round(time.Second)
}

func (r *reader) readHealth(ctx context.Context, resource Resource, into **HealthReport) {
	started := time.Now()
	err := r.get(ctx, "/"+string(resource), "text/plain", smallBody, func(response *http.Response, body io.Reader) error {
		report, err := readHealthReport(response.StatusCode, body)
		*into = report
		return err
	})
	r.record(resource, started, 1, err)
}

var healthLine = regexp.MustCompile(`^\[([+-])\](\S+)`)

// readHealthReport reads the verbose answer: 200 and 500 both carry a report.
func readHealthReport(status int, body io.Reader) (*HealthReport, error) {
	if status != http.StatusOK && status != http.StatusInternalServerError && status != http.StatusServiceUnavailable {
		return nil, statusError(status)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	report := &HealthReport{OK: status == http.StatusOK, Status: status}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, smallBody)
	for lines.Scan() {
		if match := healthLine.FindStringSubmatch(lines.Text()); match != nil {
			report.Checks = append(report.Checks, HealthCheck{Name: match[2], OK: match[1] == "+"})
		}
	}
	if len(report.Checks) == 0 {
		return nil, fmt.Errorf("%w: status %d without the list of checks", errMalformed, status)
	}
	return report, nil
}

// apiServices is the part of the APIService list that is kept; its Go types
// live in a module that nothing else here needs.
type apiServices struct {
	Kind  string `json:"kind"`
	Items []struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			CABundle []byte `json:"caBundle"`
			Service  *struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"service"`
		} `json:"spec"`
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

func (r *reader) readAPIServices(ctx context.Context) {
	started := time.Now()
	var answer apiServices
	err := r.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices", "application/json", largeBody,
		func(response *http.Response, body io.Reader) error {
			if response.StatusCode != http.StatusOK {
				return statusError(response.StatusCode)
			}
			if err := json.NewDecoder(body).Decode(&answer); err != nil {
				return fmt.Errorf("%w: %w", errMalformed, err)
			}
			if answer.Kind != "APIServiceList" {
				return fmt.Errorf("%w: kind %q", errMalformed, answer.Kind)
			}
			return nil
		})
	if err == nil {
		for i := range answer.Items {
			item := &answer.Items[i]
			kept := APIService{Meta: bare(&item.Metadata), BundleExpires: earliestEnd(item.Spec.CABundle)}
			if item.Spec.Service != nil {
				kept.Service = item.Spec.Service.Namespace + "/" + item.Spec.Service.Name
			}
			for _, c := range keepConditions(item.Status.Conditions) {
				if c.Type == "Available" {
					kept.Available = &c
				}
			}
			r.snap.APIServices = append(r.snap.APIServices, kept)
		}
	}
	r.record(APIServices, started, len(answer.Items), err)
}

// readKubeconfig keeps the certificates of our own way in; never a key.
func (r *reader) readKubeconfig(config *rest.Config) {
	started := time.Now()
	client, err := fileOr(config.CertData, config.CertFile)
	if parsed := parsePEM(client); len(parsed) > 0 {
		r.snap.ClientCertificate = keepCertificate(parsed[0])
	}
	authorities, caErr := fileOr(config.CAData, config.CAFile)
	for _, certificate := range parsePEM(authorities) {
		if r.roots == nil {
			r.roots = x509.NewCertPool()
		}
		r.roots.AddCert(certificate)
		r.snap.Authorities = append(r.snap.Authorities, *keepCertificate(certificate))
	}
	r.record(Kubeconfig, started, len(r.snap.Authorities), errors.Join(err, caErr))
}

func fileOr(data []byte, path string) ([]byte, error) {
	if len(data) > 0 || path == "" {
		return data, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, smallBody))
}
