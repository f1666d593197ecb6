package checks

import (
	"fmt"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func etcdChecks() []Check {
	metrics := []snapshot.Resource{snapshot.EtcdMetrics}
	return []Check{
		{
			ID: "ET-01", Title: "Every etcd member is healthy", Category: Etcd, Severity: Critical,
			Reads: []snapshot.Resource{snapshot.EtcdMetrics, snapshot.Readyz}, Also: []snapshot.Resource{snapshot.Pods},
			Threshold: "a member's /health or pod not ok, or the API server's own etcd check failed", Source: "etcd documentation",
			Remedy: "Restore the member before anything else: its log, its disk, then its peers' network.",
			eval:   etcdMembers,
		},
		{
			ID: "ET-02", Title: "etcd keeps its quorum when one more member is lost", Category: Etcd, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.EtcdMetrics, snapshot.Pods},
			Threshold: "healthy members − quorum < 1, for clusters of 3 and more", Source: "etcd-mixin (etcdInsufficientMembers)",
			Remedy: "Stop all maintenance and restore the missing member; one more loss stops every write.",
			eval:   etcdQuorum,
		},
		{
			ID: "ET-03", Title: "Every etcd member sees a leader", Category: Etcd, Severity: Critical, Reads: metrics,
			Threshold: "etcd_server_has_leader = 0", Source: "etcd-mixin (etcdNoLeader)",
			Remedy: "Look at the network between members and at disk latency (ET-04).",
			eval:   etcdLeader,
		},
		{
			ID: "ET-04", Title: "etcd writes its log to disk fast enough", Category: Etcd, Severity: Critical, Reads: metrics,
			Threshold: "p99 of WAL fsync over 10 ms medium, 500 ms high, 1 s critical", Source: "etcd documentation, etcd-mixin",
			Remedy: "Give etcd a disk of its own with low write latency, and move noisy neighbours away.",
			eval:   latencyTiers("etcd_disk_wal_fsync_duration_seconds", tier{Critical, 1}, tier{High, 0.5}, tier{Medium, 0.01}),
		},
		{
			ID: "ET-05", Title: "etcd commits to its database fast enough", Category: Etcd, Severity: High, Reads: metrics,
			Threshold: "p99 of backend commit over 25 ms medium, 250 ms high", Source: "etcd documentation, etcd-mixin",
			Remedy: "As for ET-04; look at the database size and fragmentation too (ET-08, ET-10).",
			eval:   latencyTiers("etcd_disk_backend_commit_duration_seconds", tier{High, 0.25}, tier{Medium, 0.025}),
		},
		{
			ID: "ET-08", Title: "The etcd database is well below its quota", Category: Etcd, Severity: Critical,
			Reads: []snapshot.Resource{snapshot.APIServerMetrics, snapshot.EtcdMetrics}, Also: []snapshot.Resource{snapshot.Pods},
			Threshold: "65 % of the quota low, 75 % high, 85 % critical", Source: "cluster-etcd-operator",
			Remedy: "Find the kinds with the most objects (ET-17), remove what is not needed, defragment; raise the quota last, up to 8 GiB.",
			eval:   etcdQuota,
		},
		{
			ID: "ET-10", Title: "The etcd database is not fragmented", Category: Etcd, Severity: Medium, Reads: metrics,
			Threshold: "less than 50 % of the file in use, with more than 100 MiB in use", Source: "etcd-mixin",
			Remedy: "Defragment one member at a time, the leader last, in a quiet hour.",
			eval:   etcdFragmentation,
		},
		{
			ID: "ET-11", Title: "etcd has raised no alarm", Category: Etcd, Severity: Critical,
			Reads:     []snapshot.Resource{snapshot.EtcdMetrics},
			Threshold: "any NOSPACE or CORRUPT alarm", Source: "etcd documentation",
			Remedy: "NOSPACE: compact, defragment, then disarm. CORRUPT: replace the member by hand; never disarm it alone.",
			eval:   etcdAlarms,
		},
		{
			ID: "ET-17", Title: "No kind of object has exploded", Category: Etcd, Severity: High,
			Reads:     []snapshot.Resource{snapshot.APIServerMetrics},
			Threshold: "more than 100,000 objects of one kind", Source: "fleetwatch (kyverno issue 8974)",
			Remedy: "Find who creates them and whether anything removes them; events and reports are the usual cause.",
			eval:   objectCounts,
		},
	}
}

// unseenMembers says why no etcd member's metrics are there; ok is false when
// some are, and the checks can go on.
func unseenMembers(in *input) (outcome, bool) {
	local, total := 0, 0
	var problems []string
	for _, scrape := range in.Scrapes {
		if scrape.Component != snapshot.ComponentEtcd {
			continue
		}
		total++
		switch {
		case scrape.First != nil:
			return outcome{}, false
		case scrape.NodeLocal:
			local++
		default:
			problems = append(problems, scrape.Instance+" ("+scrape.Problem.String()+")")
		}
	}
	switch {
	case total == 0:
		return notApplicable("etcd: %s", hosted), true
	case len(problems) == 0:
		return notApplicable("etcd shows its metrics only on its node's loopback (--listen-metrics-urls); ET-01 and ET-08 use the API server's view"), true
	default:
		return unknown("not reachable from here: %s; inspect from where the etcd metrics can be reached", strings.Join(problems, ", ")), true
	}
}

func member(name string) Object { return Object{"Pod", kubeSystem, name} }

// memberStates sorts the visible members by health. unseen ones are those of
// which nobody could say anything.
func memberStates(in *input) (down map[string]string, up, unseen []string) {
	down = map[string]string{}
	hosts := in.reachedHosts()
	probes := map[string]snapshot.Probe{}
	for _, probe := range in.Probes {
		if probe.Component == snapshot.ComponentEtcd {
			probes[probe.Pod] = probe
		}
	}
	answered := false
	for _, probe := range probes {
		answered = answered || probe.Problem == nil
	}
	for _, pod := range in.component(snapshot.ComponentEtcd) {
		probe, asked := probes[pod.Name]
		switch {
		case !ready(pod):
			down[pod.Name] = "pod is not ready" + because(pod.Ready)
		case asked && probe.Problem == nil && !probe.OK && !alarmed(probe):
			down[pod.Name] = "/health says " + answer(probe)
		case asked && probe.Problem != nil && !probe.NodeLocal && (answered || hosts[probe.Host]):
			down[pod.Name] = "/health does not answer: " + probe.Problem.String()
		case asked && probe.Problem == nil || ready(pod) && asked && probe.NodeLocal:
			up = append(up, pod.Name)
		default:
			unseen = append(unseen, pod.Name)
		}
	}
	return down, up, unseen
}

// alarmed is true for a member that works and only repeats the cluster's alarm.
func alarmed(probe snapshot.Probe) bool {
	return strings.Contains(strings.ToUpper(probe.Body), "ALARM")
}

func etcdMembers(in *input) outcome {
	down, up, unseen := memberStates(in)
	var r report
	for _, pod := range in.component(snapshot.ComponentEtcd) {
		if why, bad := down[pod.Name]; bad {
			r.add(Critical, member(pod.Name), "unhealthy", "healthy", "etcd member is unhealthy: %s", why)
		}
	}
	for _, check := range in.Readyz.Checks {
		if strings.HasPrefix(check.Name, "etcd") && !check.OK {
			r.add(Critical, Object{Kind: "APIServer", Name: in.Server}, check.Name+" failed", "ok", "the API server cannot use etcd")
		}
	}
	if len(up)+len(down)+len(unseen) == 0 && len(r.findings) == 0 {
		return notApplicable("etcd: %s; the API server's own etcd check is in AP-01", hosted)
	}
	if len(unseen) > 0 && len(r.findings) == 0 {
		return unknown("pods are ready, but their /health is not reachable from here: %s", strings.Join(unseen, ", "))
	}
	return r.outcome("%d members, and the API server's own etcd check", len(up)+len(down)+len(unseen))
}

func etcdQuorum(in *input) outcome {
	down, up, unseen := memberStates(in)
	members := len(down) + len(up) + len(unseen)
	switch {
	case members == 0:
		return notApplicable("etcd: %s", hosted)
	case members < 3:
		return notApplicable("%d etcd members have no margin by design; CP-02 reports that", members)
	}
	quorum := members/2 + 1
	var r report
	if healthy := members - len(down); healthy-quorum < 1 {
		r.add(Critical, Object{Kind: "Cluster", Name: in.Cluster}, fmt.Sprintf("%d of %d healthy", healthy, members),
			fmt.Sprintf("at least %d", quorum+1), "one more lost member stops etcd")
	}
	if len(unseen) > 0 && len(r.findings) == 0 {
		return unknown("the health of %s is not reachable from here", strings.Join(unseen, ", "))
	}
	return r.outcome("%d members, quorum %d", members, quorum)
}

func etcdLeader(in *input) outcome {
	if out, unseen := unseenMembers(in); unseen {
		return out
	}
	var r report
	seen := 0
	for _, scrape := range in.scrapes(snapshot.ComponentEtcd) {
		value, ok := latest(scrape).Value("etcd_server_has_leader")
		if !ok {
			return unknown("%s does not export etcd_server_has_leader", scrape.Instance)
		}
		seen++
		if value == 0 {
			r.add(Critical, member(scrape.Instance), "no leader", "a leader", "etcd member sees no leader: it refuses writes")
		}
	}
	return r.outcome("%d members", seen)
}

type tier struct {
	severity Severity
	over     float64
}

// latencyTiers compares the p99 of an etcd histogram with tiers, the heaviest first.
func latencyTiers(name string, tiers ...tier) func(*input) outcome {
	return func(in *input) outcome {
		if out, unseen := unseenMembers(in); unseen {
			return out
		}
		var r report
		var notes []string
		for _, scrape := range in.scrapes(snapshot.ComponentEtcd) {
			over := choose(scrape, name+"_count")
			buckets := over.buckets(scrape, name)
			p99, ok := quantile(0.99, buckets)
			if !ok {
				return unknown("%s does not export %s", scrape.Instance, name)
			}
			notes = append(notes, fmt.Sprintf("%s p99 %s %s", scrape.Instance, seconds(p99), over.text))
			for _, t := range tiers {
				if p99 > t.over {
					severity := over.temper(t.severity, above(buckets, t.over))
					r.add(severity, member(scrape.Instance), seconds(p99), seconds(t.over), "p99 of %s %s", name, over.text)
					break
				}
			}
		}
		return r.outcome("%s", strings.Join(notes, "; "))
	}
}

// defaultQuota is etcd's quota when --quota-backend-bytes is absent.
const defaultQuota = 2 << 30

func etcdQuota(in *input) outcome {
	var r report
	judge := func(object Object, size, quota float64, note string) {
		for _, t := range []tier{{Critical, 0.85}, {High, 0.75}, {Low, 0.65}} {
			if size/quota > t.over {
				r.add(t.severity, object, percent(size, quota), percent(t.over, 1), "database holds %s of %s%s", bytes(size), bytes(quota), note)
				return
			}
		}
	}
	seen := 0
	for _, scrape := range in.scrapes(snapshot.ComponentEtcd) {
		size, ok := latest(scrape).Value("etcd_mvcc_db_total_size_in_bytes")
		quota, ok2 := latest(scrape).Value("etcd_server_quota_backend_bytes")
		if ok && ok2 && quota > 0 {
			seen++
			judge(member(scrape.Instance), size, quota, "")
		}
	}
	if seen > 0 {
		return r.outcome("%d members", seen)
	}
	return etcdQuotaFromAPIServer(in, &r, judge)
}

// etcdQuotaFromAPIServer uses the size that the API server is told, and the
// quota of the etcd pods' flags.
func etcdQuotaFromAPIServer(in *input, r *report, judge func(Object, float64, float64, string)) outcome {
	members := in.component(snapshot.ComponentEtcd)
	if len(members) == 0 {
		return notApplicable("etcd: %s, so its quota is not known", hosted)
	}
	quota := float64(defaultQuota)
	for _, pod := range members {
		if flag := float64(pod.Component.QuotaBytes); flag > 0 {
			quota = flag
		}
	}
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		for _, name := range []string{"apiserver_storage_size_bytes", "apiserver_storage_db_total_size_in_bytes"} {
			if size, ok := latest(scrape).Value(name); ok {
				judge(Object{Kind: "Cluster", Name: in.Cluster}, size, quota, ", as the API server sees it")
				return r.outcome("%s of %s, from %s", bytes(size), bytes(quota), name)
			}
		}
	}
	return unknown("neither etcd nor the API server exports the database size")
}

func etcdFragmentation(in *input) outcome {
	if out, unseen := unseenMembers(in); unseen {
		return out
	}
	var r report
	seen := 0
	for _, scrape := range in.scrapes(snapshot.ComponentEtcd) {
		size, ok := latest(scrape).Value("etcd_mvcc_db_total_size_in_bytes")
		used, ok2 := latest(scrape).Value("etcd_mvcc_db_total_size_in_use_in_bytes")
		if !ok || !ok2 || size <= 0 {
			return unknown("%s does not export the size of its database", scrape.Instance)
		}
		seen++
		if used/size < 0.5 && used > 100<<20 {
			r.add(Medium, member(scrape.Instance), percent(used, size)+" in use", "50 %", "%s of %s in use", bytes(used), bytes(size))
		}
	}
	return r.outcome("%d members", seen)
}

func etcdAlarms(in *input) outcome {
	if out, unseen := unseenMembers(in); unseen {
		return out
	}
	var r report
	seen := 0
	for _, probe := range in.Probes {
		if probe.Component != snapshot.ComponentEtcd || probe.Problem != nil {
			continue
		}
		seen++
		if alarmed(probe) {
			r.add(Critical, member(probe.Pod), probe.Body, "no alarm", "etcd has raised an alarm")
		}
	}
	if seen == 0 {
		return unknown("no member's /health is reachable from here")
	}
	return r.outcome("%d members", seen)
}

func objectCounts(in *input) outcome {
	const limit = 100_000
	var r report
	seen := 0
	for _, scrape := range in.scrapes(snapshot.ComponentAPIServer) {
		samples := latest(scrape).Select("apiserver_resource_objects")
		if len(samples) == 0 {
			samples = latest(scrape).Select("apiserver_storage_objects")
		}
		for _, sample := range samples {
			seen++
			if sample.Value > limit {
				name := strings.TrimSuffix(sample.Labels["resource"]+"."+sample.Labels["group"], ".")
				r.add(High, Object{Kind: "Resource", Name: name}, fmt.Sprintf("%.0f objects", sample.Value), "100000", "one kind fills etcd")
			}
		}
	}
	if seen == 0 {
		return unknown("the API server does not export the number of stored objects")
	}
	return r.outcome("%d kinds", seen)
}
