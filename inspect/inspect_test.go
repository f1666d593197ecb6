package inspect_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return now }

// quotaCluster has all reads and one failing high check: a full quota.
func quotaCluster(name string) *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Cluster: name, Server: "https://10.0.0.1", Started: now, Finished: now.Add(time.Second), KubernetesVersion: "v1.37.2",
		Reads:       map[snapshot.Resource]snapshot.Read{},
		Readyz:      &snapshot.HealthReport{OK: true, Status: 200, Checks: []snapshot.HealthCheck{{Name: "ping", OK: true}}},
		Livez:       &snapshot.HealthReport{OK: true, Status: 200, Checks: []snapshot.HealthCheck{{Name: "ping", OK: true}}},
		Quotas:      []snapshot.Quota{{Meta: snapshot.Meta{Namespace: "shop", Name: "pods"}, Hard: map[string]float64{"pods": 2}, Used: map[string]float64{"pods": 2}}},
		APIServices: []snapshot.APIService{{Meta: snapshot.Meta{Name: "v1."}, Available: &snapshot.Condition{Status: "True"}}},
		Scrapes: []snapshot.Scrape{{Component: "kube-apiserver", Instance: "a", First: &snapshot.Samples{Values: []snapshot.Sample{
			{Name: "apiserver_request_total", Labels: map[string]string{"code": "200"}, Value: 10},
			{Name: "apiserver_resource_objects", Labels: map[string]string{"resource": "pods"}, Value: 10},
			{Name: "apiserver_flowcontrol_dispatched_requests_total", Labels: map[string]string{"priority_level": "l"}, Value: 10},
			{Name: "apiserver_client_certificate_expiration_seconds_bucket", Labels: map[string]string{"le": "+Inf"}},
			{Name: "etcd_request_duration_seconds_bucket", Labels: map[string]string{"le": "0.1"}, Value: 10},
			{Name: "etcd_request_duration_seconds_bucket", Labels: map[string]string{"le": "+Inf"}, Value: 10},
		}}}},
	}
	for _, resource := range snapshot.AllReads() {
		s.Reads[resource] = snapshot.Read{At: now}
	}
	return s
}

func judge(t *testing.T, waivers []inspect.Waiver, snapshots ...*snapshot.Snapshot) *inspect.Report {
	t.Helper()
	report, err := inspect.Judge(snapshots, inspect.Options{Now: clock, Waivers: waivers})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func quotaWaiver(expires time.Duration, object string) []inspect.Waiver {
	return []inspect.Waiver{{Check: "CA-06", Cluster: "*", Object: object, Reason: "it is", Owner: "me", Expires: now.Add(expires)}}
}

func TestWaiversInJudgement(t *testing.T) {
	for _, test := range []struct {
		name    string
		waivers []inspect.Waiver
		want    inspect.Verdict
		status  checks.Status
		matched int
	}{
		{"none", nil, inspect.NoGo, checks.Fail, 0},
		{"in force", quotaWaiver(time.Hour, "ResourceQuota/shop/*"), inspect.Risk, checks.Waived, 1},
		{"of another object", quotaWaiver(time.Hour, "ResourceQuota/bank/*"), inspect.NoGo, checks.Fail, 0},
		{"star stops at a slash", quotaWaiver(time.Hour, "*"), inspect.NoGo, checks.Fail, 0},
		{"expired", quotaWaiver(0, "ResourceQuota/shop/*"), inspect.NoGo, checks.Fail, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := judge(t, test.waivers, quotaCluster("a"))
			if report.Verdict != test.want {
				t.Fatalf("verdict %s, want %s: %v", report.Verdict, test.want, report.Reasons)
			}
			for _, result := range report.Clusters[0].Results {
				if result.Check == "CA-06" && result.Status != test.status {
					t.Errorf("status %s, want %s", result.Status, test.status)
				}
			}
			if len(test.waivers) > 0 && report.Waivers[0].Matched != test.matched {
				t.Errorf("matched %d, want %d", report.Waivers[0].Matched, test.matched)
			}
		})
	}
}

func TestUnreachableClusterStaysInReport(t *testing.T) {
	dead := &snapshot.Snapshot{
		Cluster: "b", Started: now, Finished: now, Reads: map[snapshot.Resource]snapshot.Read{},
		Unreachable: &snapshot.Problem{Reason: snapshot.ReasonRefused, Message: "dial tcp 10.0.0.9:6443"},
	}
	alive := quotaCluster("a")
	alive.Quotas = nil
	report := judge(t, nil, dead, alive)
	if report.Verdict != inspect.Unknown || len(report.Clusters) != 2 || report.Clusters[0].Verdict != inspect.Go {
		t.Fatalf("%s: %+v", report.Verdict, report.Reasons)
	}
	want := "b is UNKNOWN: the cluster is unreachable: connection_refused: dial tcp 10.0.0.9:6443"
	if len(report.Reasons) != 1 || report.Reasons[0] != want {
		t.Errorf("reasons %q, want %q", report.Reasons, want)
	}
	if report.Clusters[1].Counts[checks.Pass] != 0 {
		t.Error("an unreachable cluster has passed checks")
	}
}

func TestFingerprintsAreStable(t *testing.T) {
	first, second := judge(t, nil, quotaCluster("a")), judge(t, nil, quotaCluster("a"))
	other := judge(t, nil, quotaCluster("b"))
	print := func(r *inspect.Report) string {
		for _, result := range r.Clusters[0].Results {
			if result.Check == "CA-06" {
				return result.Findings[0].Fingerprint
			}
		}
		return ""
	}
	if print(first) == "" || print(first) != print(second) || print(first) == print(other) {
		t.Errorf("%q %q %q", print(first), print(second), print(other))
	}
}

func TestManyFindingsAreBoundedAndCounted(t *testing.T) {
	snap := quotaCluster("a")
	for range 199 {
		snap.Quotas = append(snap.Quotas, snap.Quotas[0])
	}
	for _, result := range judge(t, nil, snap).Clusters[0].Results {
		if result.Check == "CA-06" && (len(result.Findings) != inspect.MaxFindings || result.FindingsTotal != 200) {
			t.Errorf("%d findings of %d", len(result.Findings), result.FindingsTotal)
		}
	}
}

func TestRunRefusesBadSources(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	for name, sources := range map[string][]inspect.Source{
		"none":             nil,
		"no name":          {{Config: config}},
		"no configuration": {{Name: "a"}},
		"twice":            {{Name: "a", Config: config}, {Name: "a", Config: config}},
	} {
		if _, err := inspect.Run(t.Context(), sources, inspect.Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by hand")
	cancel(stopped)
	if _, err := inspect.Run(ctx, []inspect.Source{{Name: "a", Config: config}}, inspect.Options{}); !errors.Is(err, stopped) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRunOfDeadClusters(t *testing.T) {
	report, err := inspect.Run(t.Context(), []inspect.Source{
		{Name: "a", Config: &rest.Config{Host: "http://127.0.0.1:1"}},
		{Name: "b", Err: errors.New("context b has no cluster")},
	}, inspect.Options{Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict != inspect.Unknown || len(report.Reasons) != 2 {
		t.Errorf("%s %q", report.Verdict, report.Reasons)
	}
}

func TestParseWaivers(t *testing.T) {
	const good = `waivers:
- check: ND-01
  cluster: prod-*
  object: Node/worker-3
  reason: hardware exchange
  owner: sre@example.com
  expires: 2026-12-24
`
	waivers, err := inspect.ParseWaivers([]byte(good), now)
	if err != nil || len(waivers) != 1 || !waivers[0].Expires.Equal(time.Date(2026, 12, 24, 23, 59, 59, 0, time.UTC)) {
		t.Fatalf("%+v, %v", waivers, err)
	}
	if waivers, err = inspect.ParseWaivers([]byte("waivers: []\n"), now); err != nil || len(waivers) != 0 {
		t.Errorf("empty list: %+v, %v", waivers, err)
	}
	for _, test := range []struct{ name, old, new, want string }{
		{"unknown check", "ND-01", "ND-99", `no check "ND-99"`},
		{"unknown field", "owner:", "oner:", "oner"},
		{"no reason", "hardware exchange", `""`, "reason: must be set"},
		{"bad pattern", "prod-*", `"prod-["`, "not a pattern"},
		{"bad date", "2026-12-24", "tomorrow", `got "tomorrow"`},
		{"too long", "2026-12-24", "2027-12-24", "more than 30 days ahead"},
		{"second document", "2026-12-24\n", "2026-12-24\n---\nwaivers: []\n", "one YAML document"},
		{"not YAML", "waivers:", "waivers: [", "yaml"},
	} {
		_, err := inspect.ParseWaivers([]byte(strings.Replace(good, test.old, test.new, 1)), now)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	if _, err := inspect.LoadWaivers(filepath.Join(t.TempDir(), "none.yaml"), now); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func FuzzParseWaivers(f *testing.F) {
	f.Add("waivers:\n- check: ND-01\n")
	f.Add("waivers: [{check: CA-06, cluster: a, object: b, reason: c, owner: d, expires: 2026-12-01}]")
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		waivers, err := inspect.ParseWaivers([]byte(text), now)
		if err != nil {
			return
		}
		for _, waiver := range waivers {
			if waiver.Owner == "" || waiver.Reason == "" || waiver.Expires.IsZero() || waiver.Expires.Sub(now) > inspect.MaxWaiver {
				t.Errorf("accepted %+v", waiver)
			}
		}
	})
}
