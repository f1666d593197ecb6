package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	scrapeInterval = 5 * time.Second
	portBase       = 23700
	// crashPod is the pod of the testbed's fault crash-loop.
	crashPod = "crash-loop"
)

// jobs are what the testbed has of the built-in profile.
var jobs = []string{
	"cadvisor", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-state-metrics",
	"kubelet", "kubernetes-pods", "kubernetes-services",
}

type targetItem struct {
	ID      string            `json:"id"`
	Cluster string            `json:"cluster"`
	Job     string            `json:"job"`
	Shard   string            `json:"shard"`
	Health  string            `json:"health"`
	Labels  map[string]string `json:"labels"`
	Address string            `json:"address"`
	Error   string            `json:"last_error"`
}

type childItem struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
}

type clusterItem struct {
	ID     string `json:"id"`
	Status struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"status"`
	Up       int `json:"targets_up"`
	Expected int `json:"targets_expected"`
}

type eventItem struct {
	ID          string `json:"id"`
	Cluster     string `json:"cluster"`
	Reason      string `json:"reason"`
	Count       int64  `json:"count"`
	Occurrences int64  `json:"occurrences"`
	Time        time.Time
	Object      struct{ Kind, Name string }
	Event       struct{ UID string }
}

// TestUp is the life of one Fleetwatch: each step uses what the ones before it
// left, and the last ones stop it, start it again and stop it for good.
func TestUp(t *testing.T) {
	i := start(t, t.TempDir(), portBase, "--scrape-interval", scrapeInterval.String(), "--inspect-interval", "15s",
		"--testbed-nodes", "10", "--shard-capacity", "45000") // small enough that both shards are needed
	for _, step := range []struct {
		name string
		run  func(*testing.T, *instance)
	}{
		{"every job of both clusters is up", everyJobIsUp},
		{"metrics of Fleetwatch itself are clean", metricsAreClean},
		{"a crash-looping pod is seen at once and once per occurrence", crashLoopIsSeen},
		{"each fault is found by inspection", faultsAreFound},
		{"a moved target leaves no hole", movedTargetLeavesNoHole},
		{"any child may be killed", anyChildMayBeKilled},
		{"a frozen shard costs queries its own part only", frozenShard},
		{"one API server down", oneAPIServerDown},
		{"memory", memory},
		{"a restart continues", restartContinues},
		{"nothing is left", nothingIsLeft},
	} {
		if !t.Run(step.name, func(t *testing.T) { i.t = t; step.run(t, i) }) {
			i.t = t
			t.Fatalf("the steps after %q need it", step.name)
		}
	}
}

func everyJobIsUp(t *testing.T, i *instance) {
	up, err := i.query(`count by (cluster, job) (up == 1)`, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"a", "b"} {
		for _, job := range jobs {
			if !slices.ContainsFunc(up, func(s sample) bool { return s.labels["cluster"] == cluster && s.labels["job"] == job }) {
				t.Errorf("no target of %s is up in %s", job, cluster)
			}
		}
	}
	if down, err := i.query(`up == 0`, time.Time{}); err != nil || len(down) > 0 {
		t.Errorf("down: %v %v", down, err)
	}
	if stray, err := i.query(`count({__name__!="", cluster=""})`, time.Time{}); err != nil || len(stray) > 0 {
		t.Errorf("series without cluster: %v %v", stray, err)
	}
	// instance is the real target: never a collector's gateway.
	gateway := fmt.Sprintf(`count({__name__="up", instance=~"127.0.0.1:%d."})`, (portBase+100)/10)
	if s, err := i.query(gateway, time.Time{}); err != nil || len(s) > 0 {
		t.Errorf("instances that are gateways: %v %v", s, err)
	}
	for _, target := range items[targetItem](i, "/api/v1/targets") {
		if target.Labels["instance"] == "" || !strings.Contains(target.Address, target.Labels["instance"]) {
			t.Errorf("instance %q of target %s is not its address %s", target.Labels["instance"], target.ID, target.Address)
		}
	}
	out, stderr, code := i.cli("clusters", "list")
	if code != 0 || !strings.Contains(out, "ENVIRONMENT") || strings.Count(out, "ready") != 2 || strings.Count(out, "testbed") != 2 {
		t.Errorf("clusters list: exit %d\n%s%s", code, out, stderr)
	}
	if !strings.Contains(i.out.String(), "Fleetwatch is running") {
		t.Errorf("no screen in the output")
	}
}

func (i *instance) crashEvents() ([]eventItem, error) {
	body, err := i.get("/api/v1/events?cluster=a&since=1h&limit=1000&query=reason:BackOff+AND+kind:Pod+AND+name:" + crashPod)
	if err != nil {
		return nil, err
	}
	var page struct{ Items []eventItem }
	return page.Items, json.Unmarshal(body, &page)
}

// occurrences checks that records of one Event stand for every occurrence up to
// its count, each once, and returns the highest count.
func occurrences(events []eventItem) (int64, error) {
	sum, highest := map[string]int64{}, map[string]int64{}
	ids := map[string]bool{}
	var most int64
	for _, e := range events {
		if ids[e.ID] {
			return 0, fmt.Errorf("record %s is there twice", e.ID)
		}
		ids[e.ID] = true
		sum[e.Event.UID] += e.Occurrences
		highest[e.Event.UID] = max(highest[e.Event.UID], e.Count)
		most = max(most, e.Count)
	}
	for uid, n := range sum {
		if n != highest[uid] {
			return 0, fmt.Errorf("event %s occurred %d times, its records stand for %d", uid, highest[uid], n)
		}
	}
	return most, nil
}

func crashLoopIsSeen(t *testing.T, i *instance) {
	i.testbed("fault", "inject", "crash-loop", "--cluster", "a")
	took := i.eventually(5*time.Second, "the first BackOff event", func() error {
		events, err := i.crashEvents()
		if err == nil && len(events) == 0 {
			err = errors.New("none yet")
		}
		return err
	})
	t.Logf("the first BackOff event of the pod was there %s after the fault was injected (bar: 5 s)", took.Round(time.Millisecond))
	i.eventually(time.Minute, "three occurrences, each once", func() error {
		events, err := i.crashEvents()
		if err != nil {
			return err
		}
		most, err := occurrences(events)
		if err == nil && most < 3 {
			err = fmt.Errorf("%d so far", most)
		}
		return err
	})
	out, stderr, code := i.cli("events", "--cluster", "a", "--since", "1h", "--query", "reason:BackOff AND kind:Pod")
	if code != 0 || !strings.Contains(out, crashPod) {
		t.Errorf("events: exit %d\n%s%s", code, out, stderr)
	}
}

func movedTargetLeavesNoHole(t *testing.T, i *instance) {
	var target targetItem
	for _, c := range items[targetItem](i, "/api/v1/targets?cluster=a&job=kubernetes-pods") {
		target = c
	}
	if target.ID == "" {
		t.Fatal("no annotated pod in cluster a")
	}
	to := map[string]string{"shard-0": "shard-1", "shard-1": "shard-0"}[target.Shard]
	selector := fmt.Sprintf(`demo_work_units_total{cluster="a", job="kubernetes-pods", instance=%q}`, target.Labels["instance"])
	const window = 6 * scrapeInterval

	// Enough history for a rate before the move.
	i.eventually(2*time.Minute, "six scrapes of the target", func() error {
		s, err := i.query(fmt.Sprintf("min(count_over_time(%s[%s]))", selector, window), time.Time{})
		if err == nil && (len(s) == 0 || s[0].value < 6) {
			err = fmt.Errorf("%v so far", s)
		}
		return err
	})
	before, err := i.query("count("+selector+")", time.Time{})
	if err != nil || len(before) != 1 {
		t.Fatalf("series of the target: %v %v", before, err)
	}
	moved := time.Now()
	if out, stderr, code := i.cli("targets", "move", target.ID, "--to", to); code != 0 {
		t.Fatalf("move: exit %d: %s%s", code, out, stderr)
	}
	// The window after the move is over once the target's newest sample is as old.
	end := moved.Add(window + 2*scrapeInterval)
	i.eventually(2*time.Minute, "the window after the move", func() error {
		s, err := i.query("max(timestamp("+selector+"))", time.Time{})
		if err == nil && (len(s) == 0 || s[0].value < float64(end.Unix())) {
			err = fmt.Errorf("newest sample %v", s)
		}
		return err
	})
	if now := items[targetItem](i, "/api/v1/targets?cluster=a&job=kubernetes-pods"); len(now) != 1 || now[0].Shard != to || now[0].Health != "up" {
		t.Errorf("after the move: %+v, want it up on %s", now, to)
	}
	from := moved.Add(-10 * time.Second)
	count, err := i.rangeQuery("count("+selector+")", from, end, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for s := from.Unix(); s <= end.Unix(); s++ {
		if count[s] != before[0].value {
			t.Errorf("%d s after the move %v of %v series are there", s-moved.Unix(), count[s], before[0].value)
		}
	}
	truth, err := i.query(fmt.Sprintf(`demo_work_units_rate{cluster="a", job="kubernetes-pods", instance=%q}`, target.Labels["instance"]), time.Time{})
	if err != nil || len(truth) != 1 {
		t.Fatalf("known rate: %v %v", truth, err)
	}
	rate, err := i.rangeQuery(fmt.Sprintf("avg(rate(%s[%s]))", selector, window), from, end, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for s := from.Unix(); s <= end.Unix(); s++ {
		worst = max(worst, math.Abs(rate[s]/truth[0].value-1))
	}
	t.Logf("moved from %s to %s: count never dropped over %d steps of 1 s; the rate was at most %.2f %% off (bar: 1 %%)", target.Shard, to, len(count), 100*worst)
	if worst > 0.01 {
		t.Errorf("rate is off by %.2f %%, want at most 1 %%", 100*worst)
	}
}

// upByTarget is every target that Thanos Query sees up, with how many series say so.
func (i *instance) upByTarget() (map[string]float64, error) {
	s, err := i.query(`count by (cluster, job, instance) (up == 1)`, time.Time{})
	if err != nil {
		return nil, err
	}
	up := map[string]float64{}
	for _, x := range s {
		up[x.labels["cluster"]+"/"+x.labels["job"]+"/"+x.labels["instance"]] = x.value
	}
	return up, nil
}

func anyChildMayBeKilled(t *testing.T, i *instance) {
	before, err := i.upByTarget()
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range items[childItem](i, "/api/v1/children") {
		if child.Name == "testbed" {
			continue // it is the clusters, not a part of Fleetwatch
		}
		killed := time.Now()
		if err := syscall.Kill(child.PID, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", child.Name, err)
		}
		took := i.eventually(15*time.Second, "service after the death of "+child.Name, func() error {
			for _, c := range items[childItem](i, "/api/v1/children") {
				if c.Name == child.Name && (c.State != "running" || c.PID == child.PID) {
					return fmt.Errorf("%s is %s", c.Name, c.State)
				}
			}
			for _, target := range items[targetItem](i, "/api/v1/targets") {
				if target.Health != "up" || target.Shard == "" {
					return fmt.Errorf("target %s of %s in %s is %s: %s", target.ID, target.Job, target.Cluster, target.Health, target.Error)
				}
			}
			// Every target again, each as one series, from scrapes after the kill.
			now, err := i.upByTarget()
			if err != nil {
				return err
			}
			for target, series := range before {
				if now[target] != series {
					return fmt.Errorf("%s: %v series, want %v", target, now[target], series)
				}
			}
			stale, err := i.query(fmt.Sprintf(`count(timestamp(up) <= %d)`, killed.Unix()), time.Time{})
			if err == nil && len(stale) > 0 {
				err = fmt.Errorf("%v targets were not scraped since", stale[0].value)
			}
			return err
		})
		t.Logf("kill -9 of %s: everything was back after %s (bar: 15 s)", child.Name, took.Round(100*time.Millisecond))
	}
}

// frozenShard stops a shard without ending it, which no restart heals: Thanos
// Query answers all the same and says what is missing.
func frozenShard(t *testing.T, i *instance) {
	for _, child := range items[childItem](i, "/api/v1/children") {
		if child.Name != "shard-1" {
			continue
		}
		if err := syscall.Kill(child.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		body, err := httpGet(t.Context(), i.url(1)+"/api/v1/query?query=count(up)") // with a deadline of ten seconds
		took := time.Since(began)
		if err := syscall.Kill(child.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err != nil || !strings.Contains(string(body), `"warnings"`) {
			t.Errorf("query with a frozen shard: %s, %v", body, err)
		}
		t.Logf("with a frozen shard a query took %s and said what it lacks", took.Round(100*time.Millisecond))
	}
	i.eventually(30*time.Second, "the shard to go on", func() error {
		for _, target := range items[targetItem](i, "/api/v1/targets") {
			if target.Health != "up" {
				return fmt.Errorf("target %s of %s is %s", target.ID, target.Job, target.Health)
			}
		}
		return nil
	})
}

func (i *instance) cluster(id string) clusterItem {
	for _, c := range items[clusterItem](i, "/api/v1/clusters") {
		if c.ID == id {
			return c
		}
	}
	i.t.Fatalf("no cluster %s", id)
	return clusterItem{}
}

func (i *instance) verdict() (string, string) {
	body, err := i.get("/")
	if err != nil {
		i.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, "Verdict"); ok {
			word, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return word, reason
		}
	}
	i.t.Fatalf("no verdict on the screen:\n%s", body)
	return "", ""
}

func oneAPIServerDown(t *testing.T, i *instance) {
	upInA := i.cluster("a").Up
	down := time.Now()
	i.testbed("fault", "inject", "apiserver-down", "--cluster", "b")
	took := i.eventually(30*time.Second, "screen, list and verdict to say so", func() error {
		if c := i.cluster("b"); c.Status.State != "unreachable" || c.Status.Reason == "" {
			return fmt.Errorf("cluster b is %s", c.Status.State)
		}
		if out, _, _ := i.cli("clusters", "list"); !strings.Contains(out, "unreachable") {
			return fmt.Errorf("clusters list:\n%s", out)
		}
		if verdict, reason := i.verdict(); !strings.Contains(reason, "b is UNKNOWN") {
			return fmt.Errorf("verdict %s %s", verdict, reason)
		}
		return nil
	})
	t.Logf("the lost API server was on screen, in the list and in the verdict after %s (bar: 30 s)", took.Round(100*time.Millisecond))

	// The other cluster has not noticed: no second without all of its targets.
	i.eventually(time.Minute, "half a minute of outage", func() error {
		if time.Since(down) < 30*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	points, err := i.rangeQuery(`count(up{cluster="a"} == 1)`, down, time.Now(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for second, n := range points {
		if int(n) != upInA {
			t.Errorf("%d s into the outage of b, %v of %d targets of a are up", second-down.Unix(), n, upInA)
		}
	}
	if a := i.cluster("a"); a.Status.State != "ready" || a.Up != a.Expected {
		t.Errorf("cluster a: %+v", a)
	}
	i.testbed("fault", "clear", "apiserver-down", "--cluster", "b")
	took = i.eventually(90*time.Second, "cluster b to be whole again", func() error {
		b := i.cluster("b")
		if b.Status.State != "ready" || b.Up != b.Expected {
			return fmt.Errorf("cluster b is %s with %d/%d targets up", b.Status.State, b.Up, b.Expected)
		}
		if verdict, reason := i.verdict(); strings.Contains(reason, "UNKNOWN") {
			return fmt.Errorf("verdict %s %s", verdict, reason)
		}
		return nil
	})
	t.Logf("all was back %s after the API server", took.Round(100*time.Millisecond))
}

func restartContinues(t *testing.T, i *instance) {
	placed := map[string]string{}
	for _, target := range items[targetItem](i, "/api/v1/targets") {
		placed[target.ID] = target.Shard
	}
	before, err := i.crashEvents()
	if err != nil || len(before) == 0 {
		t.Fatalf("events before the restart: %d, %v", len(before), err)
	}
	i.stop()
	i.run()
	i.waitReady(4 * time.Minute)
	for _, target := range items[targetItem](i, "/api/v1/targets") {
		if was := placed[target.ID]; was != target.Shard {
			t.Errorf("target %s of %s is on %s, was on %q", target.ID, target.Job, target.Shard, was)
		}
	}
	after, err := i.crashEvents()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := occurrences(after); err != nil {
		t.Error(err)
	}
	kept := map[string]bool{}
	for _, e := range after {
		kept[e.ID] = true
	}
	for _, e := range before {
		if !kept[e.ID] {
			t.Errorf("record %s of count %d is gone", e.ID, e.Count)
		}
	}
	// Series from before the restart are there.
	old, err := i.query(`count(up == 1)`, time.Now().Add(-2*time.Minute))
	if err != nil || len(old) == 0 {
		t.Errorf("series from before the restart: %v %v", old, err)
	}
	t.Logf("after the restart all %d targets are where they were, all %d records are kept", len(placed), len(before))
}

func nothingIsLeft(t *testing.T, i *instance) {
	pids := descendants(t, i.cmd.Process.Pid)
	if len(pids) < 20 {
		t.Errorf("only %d processes below fleetwatch up: the test does not see them", len(pids))
	}
	i.stop()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	for port := portBase; port < portBase+600; port++ {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			t.Errorf("port %d is left: %v", port, err)
			continue
		}
		_ = l.Close()
	}
}
