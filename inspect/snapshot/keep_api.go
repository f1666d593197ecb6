package snapshot

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
)

func keepService(s *corev1.Service) Service {
	return Service{
		Meta: bare(&s.ObjectMeta), Type: string(s.Spec.Type), Selector: s.Spec.Selector,
		LoadBalancer: len(s.Status.LoadBalancer.Ingress),
	}
}

func keepEndpointSlice(s *discoveryv1.EndpointSlice) EndpointSlice {
	return EndpointSlice{
		Meta: bare(&s.ObjectMeta), Service: s.Labels[discoveryv1.LabelServiceName],
		Endpoints: each(s.Endpoints, func(e *discoveryv1.Endpoint) Endpoint {
			kept := Endpoint{Ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
			if e.NodeName != nil {
				kept.Node = *e.NodeName
			}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				kept.Target = e.TargetRef.Name
			}
			return kept
		}),
	}
}

func keepPVC(c *corev1.PersistentVolumeClaim) PVC {
	return PVC{Meta: bare(&c.ObjectMeta), Phase: string(c.Status.Phase), Volume: c.Spec.VolumeName}
}

func keepPV(v *corev1.PersistentVolume) PV {
	kept := PV{Meta: bare(&v.ObjectMeta), Phase: string(v.Status.Phase), Message: shorten(v.Status.Message, messageLimit)}
	if v.Spec.ClaimRef != nil {
		kept.Claim = v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
	}
	return kept
}

func keepPDB(b *policyv1.PodDisruptionBudget) PDB {
	return PDB{
		Meta: bare(&b.ObjectMeta), Allowed: b.Status.DisruptionsAllowed, Healthy: b.Status.CurrentHealthy,
		Desired: b.Status.DesiredHealthy, Expected: b.Status.ExpectedPods, Conditions: keepConditions(b.Status.Conditions),
	}
}

func keepHPA(h *autoscalingv2.HorizontalPodAutoscaler) HPA {
	return HPA{
		Meta:   bare(&h.ObjectMeta),
		Target: Owner{Kind: h.Spec.ScaleTargetRef.Kind, Name: h.Spec.ScaleTargetRef.Name},
		Min:    one(h.Spec.MinReplicas), Max: h.Spec.MaxReplicas,
		Current: h.Status.CurrentReplicas, Desired: h.Status.DesiredReplicas,
		Conditions: each(h.Status.Conditions, func(c *autoscalingv2.HorizontalPodAutoscalerCondition) Condition {
			return condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
		}),
	}
}

func keepNamespace(n *corev1.Namespace) Namespace {
	return Namespace{
		Meta: bare(&n.ObjectMeta), Phase: string(n.Status.Phase),
		Conditions: each(n.Status.Conditions, func(c *corev1.NamespaceCondition) Condition {
			return condition(c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime)
		}),
	}
}

func keepCSR(c *certificatesv1.CertificateSigningRequest) CSR {
	kept := CSR{Meta: bare(&c.ObjectMeta), Signer: c.Spec.SignerName, Requester: c.Spec.Username, Pending: true}
	if len(c.Status.Conditions) > 0 || len(c.Status.Certificate) > 0 {
		kept.Pending = false
	}
	return kept
}

func keepQuota(q *corev1.ResourceQuota) Quota {
	return Quota{Meta: bare(&q.ObjectMeta), Hard: quantities(q.Status.Hard), Used: quantities(q.Status.Used)}
}

func keepValidating(c *admissionv1.ValidatingWebhookConfiguration) []Webhook {
	return each(c.Webhooks, func(w *admissionv1.ValidatingWebhook) Webhook {
		return keepWebhook("ValidatingWebhookConfiguration", c.Name, w.Name, w.FailurePolicy, &w.ClientConfig)
	})
}

func keepMutating(c *admissionv1.MutatingWebhookConfiguration) []Webhook {
	return each(c.Webhooks, func(w *admissionv1.MutatingWebhook) Webhook {
		return keepWebhook("MutatingWebhookConfiguration", c.Name, w.Name, w.FailurePolicy, &w.ClientConfig)
	})
}

func keepWebhook(
	kind, configuration, name string, policy *admissionv1.FailurePolicyType, client *admissionv1.WebhookClientConfig,
) Webhook {
	kept := Webhook{
		Kind: kind, Configuration: configuration, Name: name,
		Fail:          policy == nil || *policy == admissionv1.Fail,
		BundleExpires: earliestEnd(client.CABundle),
	}
	if client.Service != nil {
		kept.Service = client.Service.Namespace + "/" + client.Service.Name
	}
	return kept
}

// earliestEnd is the first moment at which a certificate of a PEM bundle ends.
func earliestEnd(bundle []byte) *time.Time {
	var earliest *time.Time
	for _, certificate := range parsePEM(bundle) {
		if end := certificate.NotAfter.UTC(); earliest == nil || end.Before(*earliest) {
			earliest = &end
		}
	}
	return earliest
}

// parsePEM returns the certificates of a PEM text and passes over the rest.
func parsePEM(text []byte) []*x509.Certificate {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return certificates
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, certificate)
		}
	}
}

func keepCertificate(c *x509.Certificate) *Certificate {
	return &Certificate{
		Subject: shorten(c.Subject.String(), messageLimit), Issuer: shorten(c.Issuer.String(), messageLimit),
		Serial: c.SerialNumber.Text(16), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
	}
}
