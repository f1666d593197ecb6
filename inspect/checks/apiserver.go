package checks

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func apiServerChecks() []Check {
	metrics := []snapshot.Resource{snapshot.APIServerMetrics}
	return []Check{
		{
			ID: "AP-01", Title: "Every API server says that it is live and ready", Category: APIServer, Severity: Critical,
			Reads: []snapshot.Resource{snapshot.Readyz, snapshot.Livez}, Also: []snapshot.Resource{snapshot.APIServerReplicas},
			Threshold: "any failed check of /readyz or /livez, on any replica that can be reached", Source: "Kubernetes documentation",
			Remedy: "The failed check's name says which part; kubectl get --raw '/readyz?verbose' shows it again.",
			eval:   apiServerHealth,
		},
		{
			ID: "AP-03", Title: "API requests do not end in server errors", Category: APIServer, Severity: Critical, Reads: metrics,
			Threshold: "5xx answers over 1 % high, 5 % critical", Source: "kubernetes-mixin (error budget)",
			Remedy: "Look at etcd's latency, at webhooks and at aggregated API servers.",
			eval:   serverErrors,
		},
		{
			ID: "AP-04", Title: "Priority and fairness rejects no requests", Category: APIServer, Severity: High, Reads: metrics,
			Threshold: "more than 1 % of a priority level's requests rejected", Source: "fleetwatch",
			Remedy: "Find the client that floods the named priority level; give it a flow schema of its own before raising limits.",
			eval:   rejections,
		},
		{
			ID: "AP-06", Title: "Aggregated APIs are available", Category: APIServer, Severity: High,
			Reads:     []snapshot.Resource{snapshot.APIServices},
			Threshold: "Available is not True for more than 1 min", Source: "kubernetes-mixin, ACK",
			Remedy: "Repair the service behind the named APIService; until then namespaces cannot be deleted and discovery is slow.",
			eval:   aggregatedAPIs,
		},
		{
			ID: "AP-07", Title: "Admission webhooks have someone who answers", Category: APIServer, Severity: Critical,
			Reads: []snapshot.Resource{
				snapshot.ValidatingHooks, snapshot.MutatingHooks, snapshot.Services, snapshot.EndpointSlices,
			},
			Threshold: "failurePolicy Fail without a ready endpoint critical, Ignore low", Source: "fleetwatch",
			Remedy: "Bring the webhook's pods back; as a last resort set failurePolicy to Ignore for as long as it takes.",
			eval:   webhooks,
		},
		{
			ID: "AP-09", Title: "No one uses APIs that will be removed", Category: APIServer, Severity: Medium,
			Reads:     []snapshot.Resource{snapshot.APIServerMetrics, snapshot.Version},
			Threshold: "a deprecated API with a removal release was requested", Source: "Kubernetes documentation",
			Remedy: "Find the client in the audit log (annotation k8s.io/deprecated) and move it before the next upgrade.",
			eval:   deprecatedAPIs,
		},
		{
			ID: "AP-10", Title: "The API server's storage answers fast", Category: APIServer, Severity: High, Reads: metrics,
			Threshold: "p99 of etcd requests over 1 s", Source: "fleetwatch",
			Remedy: "Look at etcd's disk (ET-04, ET-05) and at clients that list big collections.",
			eval:   storageLatency,
		},
		{
			ID: "AP-12", Title: "No namespace hangs in termination", Category: APIServer, Severity: Medium,
			Reads:     []snapshot.Resource{snapshot.Namespaces},
			Threshold: "Terminating for more than 15 min", Source: "fleetwatch",
			Remedy: "The conditions of the namespace name what is left; repair the finalizer's owner rather than remove the finalizer.",
			eval:   terminatingNamespaces,
		},
	}
}

func failedNames(report *snapshot.HealthReport) string {
	var names []string
	for _, check := range report.Checks {
		if !check.OK {
			names = append(names, check.Name)
		}
	}
	return strings.Join(names, ", ")
}

func apiServerHealth(in *input) outcome {
	var r report
	endpoint := Object{Kind: "APIServer", Name: in.Server}
	for name, health := range map[string]*snapshot.HealthReport{"/readyz": in.Readyz, "/livez": in.Livez} {
		if !health.OK {
			r.add(Critical, endpoint, fmt.Sprintf("%d", health.Status), "200", "%s: failed: %s", name, failedNames(health))
		}
	}
	hosts := in.reachedHosts()
	replicas := 0
	var unseen []string
	for _, probe := range in.Probes {
		if probe.Component != snapshot.ComponentAPIServer {
			continue
		}
		replica := Object{"Pod", kubeSystem, probe.Pod}
		switch {
		case probe.Problem == nil && probe.OK:
			replicas++
		case probe.Status == 401 || probe.Status == 403:
			unseen = append(unseen, probe.Pod+" answers only to known users")
		case probe.Problem == nil, !probe.NodeLocal && hosts[probe.Host]:
			replicas++
			r.add(Critical, replica, answer(probe), "200 ok", "this replica is not ready at %s", probe.URL)
		default:
			unseen = append(unseen, probe.Pod+" ("+probe.Problem.String()+")")
		}
	}
	slices.SortFunc(r.findings, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	note := fmt.Sprintf("%d checks at %s, and %d replicas one by one", len(in.Readyz.Checks), in.Server, replicas)
	if len(unseen) > 0 {
		note += "; not reached directly: " + strings.Join(unseen, ", ")
	}
	return r.outcome("%s", note)
}

func serverErrors(in *input) outcome {
	const name = "apiserver_request_total"
	var r report
	var notes []string
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		over := choose(scrape, name)
		total, bad := 0.0, 0.0
		for _, sample := range latest(scrape).Select(name) {
			code := sample.Labels["code"]
			count := over.increase(scrape, name, "code", code)
			total += count
			if strings.HasPrefix(code, "5") {
				bad += count
			}
		}
		if total == 0 {
			return unknown("the API server does not export %s", name)
		}
		notes = append(notes, fmt.Sprintf("%.0f requests %s, %s server errors", total, over.text, percent(bad, total)))
		for _, t := range []tier{{Critical, 0.05}, {High, 0.01}} {
			if bad/total > t.over && bad >= 10 {
				r.add(over.temper(t.severity, bad), Object{Kind: "APIServer", Name: scrape.Instance}, percent(bad, total), percent(t.over, 1),
					"%.0f of %.0f requests ended in a server error %s", bad, total, over.text)
				break
			}
		}
	}
	return r.outcome("%s", strings.Join(notes, "; "))
}

func rejections(in *input) outcome {
	const rejected, dispatched = "apiserver_flowcontrol_rejected_requests_total", "apiserver_flowcontrol_dispatched_requests_total"
	var r report
	levels := map[string]bool{}
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		over := choose(scrape, dispatched)
		for _, sample := range latest(scrape).Select(dispatched) {
			levels[sample.Labels["priority_level"]] = true
		}
		for _, sample := range latest(scrape).Select(rejected) {
			levels[sample.Labels["priority_level"]] = true
		}
		for _, level := range slices.Sorted(maps.Keys(levels)) {
			refused := over.increase(scrape, rejected, "priority_level", level)
			total := refused + over.increase(scrape, dispatched, "priority_level", level)
			if refused >= 10 && refused/total > 0.01 {
				r.add(over.temper(High, refused), Object{Kind: "PriorityLevelConfiguration", Name: level}, percent(refused, total), "1 %",
					"%.0f of %.0f requests rejected %s", refused, total, over.text)
			}
		}
	}
	if len(levels) == 0 {
		return unknown("the API server does not export %s", dispatched)
	}
	return r.outcome("%d priority levels", len(levels))
}

func aggregatedAPIs(in *input) outcome {
	var r report
	now := in.now(snapshot.APIServices)
	for i := range in.APIServices {
		api := &in.APIServices[i]
		since := api.Created
		if api.Available != nil {
			since = api.Available.Changed
		}
		if (api.Available == nil || api.Available.Status != "True") && now.Sub(since) > time.Minute {
			r.add(High, object("APIService", api.Meta), "not available for "+age(now.Sub(since)), "1 min", "served by %s%s", orLocal(api.Service), because(api.Available))
		}
	}
	if len(in.APIServices) == 0 {
		return unknown("the list of APIServices is empty, which no API server shows")
	}
	return r.outcome("%d APIServices", len(in.APIServices))
}

func orLocal(service string) string {
	if service == "" {
		return "the API server itself"
	}
	return "service " + service
}

func webhooks(in *input) outcome {
	if len(in.Webhooks) == 0 {
		return notApplicable("no admission webhook is configured")
	}
	known := map[string]bool{}
	for i := range in.Services {
		known[in.Services[i].Namespace+"/"+in.Services[i].Name] = true
	}
	external := map[string]bool{}
	for i := range in.Services {
		if s := &in.Services[i]; s.Type == "ExternalName" {
			external[s.Namespace+"/"+s.Name] = true
		}
	}
	var r report
	byURL := 0
	for i := range in.Webhooks {
		hook := &in.Webhooks[i]
		if hook.Service == "" || external[hook.Service] {
			byURL++
			continue
		}
		severity, effect := Low, "its rule is not enforced"
		if hook.Fail {
			severity, effect = Critical, "every request that it covers is refused"
		}
		target := Object{Kind: hook.Kind, Name: hook.Configuration}
		switch {
		case !known[hook.Service]:
			r.add(severity, target, "service missing", "a ready endpoint", "webhook %s: service %s does not exist: %s", hook.Name, hook.Service, effect)
		case in.readyEndpoints(hook.Service) == 0:
			r.add(severity, target, "0 ready endpoints", "a ready endpoint", "webhook %s: service %s has no ready endpoint: %s", hook.Name, hook.Service, effect)
		}
	}
	return r.outcome("%d webhooks, %d of them called by URL and not checked", len(in.Webhooks), byURL)
}

// readyEndpoints counts the ready endpoints of namespace/service.
func (in *input) readyEndpoints(service string) int {
	count := 0
	for _, i := range in.slices[service] {
		for _, endpoint := range in.EndpointSlices[i].Endpoints {
			if endpoint.Ready {
				count++
			}
		}
	}
	return count
}

func deprecatedAPIs(in *input) outcome {
	var r report
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		for _, sample := range latest(scrape).Select("apiserver_requested_deprecated_apis") {
			if removed := sample.Labels["removed_release"]; removed != "" && sample.Value > 0 {
				name := strings.Trim(sample.Labels["resource"]+"."+sample.Labels["version"]+"."+sample.Labels["group"], ".")
				r.add(Medium, Object{Kind: "API", Name: name}, "requested", "not requested", "removed in %s; this is %s", removed, in.KubernetesVersion)
			}
		}
	}
	return r.outcome("requests since the API server started")
}

func storageLatency(in *input) outcome {
	const name = "etcd_request_duration_seconds"
	var r report
	var notes []string
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		over := choose(scrape, name+"_count")
		buckets := over.buckets(scrape, name)
		p99, ok := quantile(0.99, buckets)
		if !ok || math.IsNaN(p99) {
			return unknown("the API server does not export %s", name)
		}
		notes = append(notes, fmt.Sprintf("p99 %s %s", seconds(p99), over.text))
		if p99 > 1 {
			r.add(over.temper(High, above(buckets, 1)), Object{Kind: "APIServer", Name: scrape.Instance}, seconds(p99), "1 s", "p99 of requests to etcd %s", over.text)
		}
	}
	return r.outcome("%s", strings.Join(notes, "; "))
}

func terminatingNamespaces(in *input) outcome {
	const limit = 15 * time.Minute
	var r report
	now := in.now(snapshot.Namespaces)
	for i := range in.Namespaces {
		namespace := &in.Namespaces[i]
		if namespace.Deleted == nil || now.Sub(*namespace.Deleted) <= limit {
			continue
		}
		var left string
		for _, c := range namespace.Conditions {
			if c.Status == "True" {
				left = because(&c)
			}
		}
		r.add(Medium, Object{Kind: "Namespace", Name: namespace.Name}, age(now.Sub(*namespace.Deleted)), "15 min", "hangs in termination%s", left)
	}
	return r.outcome("%d namespaces", len(in.Namespaces))
}
