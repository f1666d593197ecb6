package checks

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

const day = 24 * time.Hour

func certificateChecks() []Check {
	return []Check{
		{
			ID: "CE-01", Title: "The API servers' certificates last", Category: Certificates, Severity: Critical,
			Reads: []snapshot.Resource{snapshot.ServingCert}, Also: []snapshot.Resource{snapshot.APIServerReplicas},
			Threshold: "less than 30 d medium, 7 d high, 1 d critical, on any endpoint", Source: "kubernetes-mixin",
			Remedy: "Renew it (kubeadm: kubeadm certs renew apiserver) and confirm with a new handshake that it is in use.",
			eval:   servingCertificates,
		},
		{
			ID: "CE-03", Title: "Certificate authorities last", Category: Certificates, Severity: High,
			Reads:     []snapshot.Resource{snapshot.Kubeconfig},
			Threshold: "less than 2 y medium, 1 y high", Source: "cluster-etcd-operator",
			Remedy: "Plan the rotation of the authority: it takes every kubeconfig, kubelet and webhook with it.",
			eval:   authorities,
		},
		{
			ID: "CE-05", Title: "Certificate requests do not wait", Category: Certificates, Severity: High,
			Reads:     []snapshot.Resource{snapshot.CSRs},
			Threshold: "pending for more than 10 min; high for kubelets, else medium", Source: "kubernetes issue 73356",
			Remedy: "Look at who approves requests of this signer; approve by hand only after checking requester and names.",
			eval:   pendingRequests,
		},
		{
			ID: "CE-06", Title: "CA bundles of webhooks and aggregated APIs last", Category: Certificates, Severity: High,
			Reads:     []snapshot.Resource{snapshot.ValidatingHooks, snapshot.MutatingHooks, snapshot.APIServices},
			Threshold: "less than 30 d", Source: "fleetwatch",
			Remedy: "Renew the certificate with its owner (cert-manager, the operator's own rotation) before it stops all requests.",
			eval:   bundles,
		},
		{
			ID: "CE-07", Title: "Clients of the API server use certificates that last", Category: Certificates, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.APIServerMetrics},
			Threshold: "any within 7 d high, within 1 d critical (first percentile)", Source: "kubernetes-mixin (KubeClientCertificateExpiration)",
			Remedy: "Find the client in the audit log: kubelets, the controller manager's and administrators' kubeconfigs are the usual ones.",
			eval:   clientCertificates,
		},
		{
			ID: "CE-09", Title: "Our own certificate for this cluster lasts", Category: Certificates, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.Kubeconfig},
			Threshold: "less than 30 d medium, 7 d high, 1 d critical", Source: "fleetwatch",
			Remedy: "Renew the client certificate in the kubeconfig, or change to a token.",
			eval:   ownCertificate,
		},
	}
}

// lifetime adds a finding when a certificate ends too soon.
func lifetime(r *report, target Object, what string, left time.Duration, tiers ...lifeTier) {
	for _, t := range tiers {
		if left >= t.under {
			continue
		}
		if left < 0 {
			r.add(t.severity, target, "expired "+age(-left)+" ago", age(t.under), "%s has expired", what)
		} else {
			r.add(t.severity, target, age(left)+" left", age(t.under), "%s ends soon", what)
		}
		return
	}
}

type lifeTier struct {
	severity Severity
	under    time.Duration
}

var leafTiers = []lifeTier{{Critical, day}, {High, 7 * day}, {Medium, 30 * day}}

func servingCertificates(in *input) outcome {
	if len(in.Serving) == 0 {
		return notApplicable("the API server is reached without TLS")
	}
	var r report
	soonest := time.Duration(math.MaxInt64)
	now := in.now(snapshot.ServingCert)
	for _, serving := range in.Serving {
		target := Object{Kind: "Endpoint", Name: serving.Endpoint}
		if serving.Leaf == nil {
			continue
		}
		left := serving.Leaf.NotAfter.Sub(now)
		soonest = min(soonest, left)
		lifetime(&r, target, "the serving certificate "+serving.Leaf.Subject, left, leafTiers...)
		if serving.Problem != nil && left >= 0 {
			r.add(High, target, serving.Problem.String(), "signed by the cluster's authority", "this replica presents a certificate that clients refuse")
		}
	}
	return r.outcome("%d endpoints, the first ends in %s", len(in.Serving), age(soonest))
}

func authorities(in *input) outcome {
	if len(in.Authorities) == 0 {
		return notApplicable("the kubeconfig names no authority of its own")
	}
	var r report
	now := in.now(snapshot.Kubeconfig)
	longest := now
	for _, ca := range in.Authorities {
		if ca.NotAfter.After(longest) {
			longest = ca.NotAfter
		}
	}
	for _, ca := range in.Authorities {
		// During a rotation the old authority may end while the new one lasts.
		if ca.NotAfter.Before(longest) && len(in.Authorities) > 1 {
			continue
		}
		lifetime(&r, Object{Kind: "Authority", Name: ca.Subject}, "the authority", ca.NotAfter.Sub(now),
			lifeTier{High, 365 * day}, lifeTier{Medium, 730 * day})
	}
	if len(r.findings) == 0 && longest.Equal(now) {
		r.add(High, Object{Kind: "Authority", Name: in.Authorities[0].Subject}, "expired", "365d", "every authority has expired")
	}
	return r.outcome("%d authorities of the kubeconfig; etcd's and the front proxy's are not visible from here", len(in.Authorities))
}

func pendingRequests(in *input) outcome {
	const limit = 10 * time.Minute
	var r report
	now := in.now(snapshot.CSRs)
	for i := range in.CSRs {
		csr := &in.CSRs[i]
		if !csr.Pending || now.Sub(csr.Created) <= limit {
			continue
		}
		severity := Medium
		if strings.HasSuffix(csr.Signer, "/kubelet-serving") || strings.HasSuffix(csr.Signer, "/kube-apiserver-client-kubelet") {
			severity = High
		}
		r.add(severity, Object{Kind: "CertificateSigningRequest", Name: csr.Name}, "pending for "+age(now.Sub(csr.Created)), "10 min",
			"%s waits for %s", csr.Requester, csr.Signer)
	}
	return r.outcome("%d requests", len(in.CSRs))
}

func bundles(in *input) outcome {
	const limit = 30 * day
	var r report
	now := in.now(snapshot.APIServices)
	seen := 0
	judge := func(target Object, what string, end *time.Time) {
		if end != nil {
			seen++
			lifetime(&r, target, what, end.Sub(now), lifeTier{High, limit})
		}
	}
	for i := range in.Webhooks {
		hook := &in.Webhooks[i]
		judge(Object{Kind: hook.Kind, Name: hook.Configuration}, "the CA bundle of webhook "+hook.Name, hook.BundleExpires)
	}
	for i := range in.APIServices {
		judge(object("APIService", in.APIServices[i].Meta), "the CA bundle", in.APIServices[i].BundleExpires)
	}
	if seen == 0 {
		return notApplicable("no webhook and no aggregated API has a CA bundle")
	}
	return r.outcome("%d bundles", seen)
}

func clientCertificates(in *input) outcome {
	const name = "apiserver_client_certificate_expiration_seconds"
	var r report
	var notes []string
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		over := choose(scrape, name+"_count")
		buckets := over.buckets(scrape, name)
		if len(buckets) == 0 {
			return unknown("the API server does not export %s", name)
		}
		total := buckets[len(buckets)-1].count
		if total == 0 {
			return notApplicable("no client has used a certificate %s", over.text)
		}
		notes = append(notes, fmt.Sprintf("%.0f uses of certificates %s", total, over.text))
		for _, t := range []lifeTier{{Critical, day}, {High, 7 * day}} {
			if soon := below(buckets, t.under); soon/total > 0.01 {
				r.add(t.severity, Object{Kind: "APIServer", Name: scrape.Instance}, percent(soon, total)+" of uses", "1 %",
					"clients used certificates that end within %s, %s", age(t.under), over.text)
				break
			}
		}
	}
	return r.outcome("%s", strings.Join(notes, "; "))
}

// below counts the observations in the buckets up to a bound.
func below(all []bucket, bound time.Duration) float64 {
	count := 0.0
	for _, b := range all {
		if b.upper <= bound.Seconds() {
			count = b.count
		}
	}
	return count
}

func ownCertificate(in *input) outcome {
	if in.ClientCertificate == nil {
		return notApplicable("this cluster is reached with a token or a plugin, not with a certificate of the kubeconfig")
	}
	var r report
	left := in.ClientCertificate.NotAfter.Sub(in.now(snapshot.Kubeconfig))
	lifetime(&r, Object{Kind: "Kubeconfig", Name: in.Cluster}, "our client certificate "+in.ClientCertificate.Subject, left, leafTiers...)
	return r.outcome("ends in %s", age(left))
}
