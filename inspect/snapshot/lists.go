package snapshot

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lists are the reads of whole collections, the long ones first.
func (r *reader) lists() []func(context.Context) {
	kube, snap := r.kube, r.snap
	return []func(context.Context){
		func(ctx context.Context) {
			snap.Pods = list(ctx, r, Pods, typed(kube.CoreV1().Pods("").List, func(l *corev1.PodList) []corev1.Pod { return l.Items }), keepPod)
		},
		func(ctx context.Context) {
			snap.Nodes = list(ctx, r, Nodes, typed(kube.CoreV1().Nodes().List, func(l *corev1.NodeList) []corev1.Node { return l.Items }), keepNode)
		},
		func(ctx context.Context) {
			snap.Jobs = list(ctx, r, Jobs, typed(kube.BatchV1().Jobs("").List, func(l *batchv1.JobList) []batchv1.Job { return l.Items }), keepJob)
		},
		func(ctx context.Context) {
			snap.CronJobs = list(ctx, r, CronJobs, typed(kube.BatchV1().CronJobs("").List, func(l *batchv1.CronJobList) []batchv1.CronJob { return l.Items }), keepCronJob)
		},
		func(ctx context.Context) {
			snap.Services = list(ctx, r, Services, typed(kube.CoreV1().Services("").List, func(l *corev1.ServiceList) []corev1.Service { return l.Items }), keepService)
		},
		func(ctx context.Context) {
			snap.EndpointSlices = list(ctx, r, EndpointSlices, typed(kube.DiscoveryV1().EndpointSlices("").List, func(l *discoveryv1.EndpointSliceList) []discoveryv1.EndpointSlice { return l.Items }), keepEndpointSlice)
		},
		func(ctx context.Context) {
			snap.PVCs = list(ctx, r, PVCs, typed(kube.CoreV1().PersistentVolumeClaims("").List, func(l *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return l.Items }), keepPVC)
		},
		func(ctx context.Context) {
			snap.PVs = list(ctx, r, PVs, typed(kube.CoreV1().PersistentVolumes().List, func(l *corev1.PersistentVolumeList) []corev1.PersistentVolume { return l.Items }), keepPV)
		},
		func(ctx context.Context) {
			snap.PDBs = list(ctx, r, PDBs, typed(kube.PolicyV1().PodDisruptionBudgets("").List, func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items }), keepPDB)
		},
		func(ctx context.Context) {
			snap.HPAs = list(ctx, r, HPAs, typed(kube.AutoscalingV2().HorizontalPodAutoscalers("").List, func(l *autoscalingv2.HorizontalPodAutoscalerList) []autoscalingv2.HorizontalPodAutoscaler {
				return l.Items
			}), keepHPA)
		},
		func(ctx context.Context) {
			snap.Namespaces = list(ctx, r, Namespaces, typed(kube.CoreV1().Namespaces().List, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items }), keepNamespace)
		},
		func(ctx context.Context) {
			snap.CSRs = list(ctx, r, CSRs, typed(kube.CertificatesV1().CertificateSigningRequests().List, func(l *certificatesv1.CertificateSigningRequestList) []certificatesv1.CertificateSigningRequest {
				return l.Items
			}), keepCSR)
		},
		func(ctx context.Context) {
			snap.Quotas = list(ctx, r, Quotas, typed(kube.CoreV1().ResourceQuotas("").List, func(l *corev1.ResourceQuotaList) []corev1.ResourceQuota { return l.Items }), keepQuota)
		},
		r.listWorkloads,
		r.listLeases,
		r.listWebhooks,
	}
}

// listWorkloads reads the three kinds one after the other: they share a field.
func (r *reader) listWorkloads(ctx context.Context) {
	apps := r.kube.AppsV1()
	deployments := list(ctx, r, Deployments,
		typed(apps.Deployments("").List, func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items }), keepDeployment)
	sets := list(ctx, r, StatefulSets,
		typed(apps.StatefulSets("").List, func(l *appsv1.StatefulSetList) []appsv1.StatefulSet { return l.Items }), keepStatefulSet)
	daemons := list(ctx, r, DaemonSets,
		typed(apps.DaemonSets("").List, func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items }), keepDaemonSet)
	r.snap.Workloads = slices.Concat(deployments, sets, daemons)
}

func (r *reader) listLeases(ctx context.Context) {
	leases := func(l *coordinationv1.LeaseList) []coordinationv1.Lease { return l.Items }
	coordination := r.kube.CoordinationV1()
	system := list(ctx, r, SystemLeases, typed(coordination.Leases(metav1.NamespaceSystem).List, leases), keepLease)
	nodes := list(ctx, r, NodeLeases, typed(coordination.Leases(corev1.NamespaceNodeLease).List, leases), keepLease)
	r.snap.Leases = slices.Concat(system, nodes)
}

func (r *reader) listWebhooks(ctx context.Context) {
	admission := r.kube.AdmissionregistrationV1()
	validating := list(ctx, r, ValidatingHooks, typed(admission.ValidatingWebhookConfigurations().List,
		func(l *admissionv1.ValidatingWebhookConfigurationList) []admissionv1.ValidatingWebhookConfiguration {
			return l.Items
		}), keepValidating)
	mutating := list(ctx, r, MutatingHooks, typed(admission.MutatingWebhookConfigurations().List,
		func(l *admissionv1.MutatingWebhookConfigurationList) []admissionv1.MutatingWebhookConfiguration {
			return l.Items
		}), keepMutating)
	r.snap.Webhooks = slices.Concat(slices.Concat(validating...), slices.Concat(mutating...))
}

// typed adapts a typed client's List to a page.
func typed[L metav1.ListInterface, T any](
	fetch func(context.Context, metav1.ListOptions) (L, error), items func(L) []T,
) page[T] {
	return func(ctx context.Context, options metav1.ListOptions) ([]T, metav1.ListMeta, error) {
		answer, err := fetch(ctx, options)
		if err != nil {
			return nil, metav1.ListMeta{}, err
		}
		meta := metav1.ListMeta{ResourceVersion: answer.GetResourceVersion(), Continue: answer.GetContinue()}
		return items(answer), meta, nil
	}
}
