package embedded_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

func setVersion(t *testing.T, path string, v int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf("PRAGMA user_version = %d", v)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

type collector struct{ prometheus.Metric }

func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.Desc() }
func (c collector) Collect(ch chan<- prometheus.Metric) { ch <- c.Metric }

// counter finds the single series of a counter family.
func counter(t *testing.T, reg *prometheus.Registry, name string) prometheus.Collector {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.Metric) == 1 {
			desc := prometheus.NewDesc(name, "x", nil, nil)
			return collector{prometheus.MustNewConstMetric(desc, prometheus.CounterValue, f.Metric[0].GetCounter().GetValue())}
		}
	}
	t.Fatalf("no series of %s", name)
	return nil
}

// runWriter is the process that is killed: it appends batches over two days
// and says on stdout what it was told is durable.
func runWriter(dir string) {
	s, err := embedded.Open(embedded.Config{Dir: dir, Now: func() time.Time { return base }})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	at, _, err := s.Position(context.Background(), "a")
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	start := 0
	_, _ = fmt.Sscan(at.ResourceVersion, &start)
	for n := start + 1; ; n++ {
		p := record.Position{Cluster: "a", ResourceVersion: fmt.Sprint(n), At: base}
		if _, err := s.Append(context.Background(), batch(n), p); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("durable", n)
	}
}

const batchSize = 20

func batch(n int) []record.Record {
	var list []record.Record
	for i := range batchSize {
		list = append(list, event(fmt.Sprintf("%d-%d", n, i), base.AddDate(0, 0, -(i%2)), 1))
	}
	return list
}

// TestKill kills a writer with SIGKILL again and again. What it was told is
// durable must be there, each record once, and a restart goes on from the
// saved position.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	durable := 0
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "FLEETWATCH_TEST_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			if i == 5+round*4 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := fmt.Sscanf(lines.Text(), "durable %d", &durable); err != nil {
				t.Fatalf("writer says %q", lines.Text())
			}
		}
		_ = cmd.Wait() // it was killed
	}
	s := open(t, embedded.Config{Dir: dir})
	p, _, err := s.Position(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	position := 0
	if _, err := fmt.Sscan(p.ResourceVersion, &position); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	q := store.Search{Limit: 1000}
	for {
		page, err := s.Search(t.Context(), q)
		if err != nil || len(page.Unseen) > 0 {
			t.Fatal(err, page.Unseen)
		}
		for _, r := range page.Items {
			got[r.ID]++
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	for n := 1; n <= max(durable, position); n++ {
		for _, r := range batch(n) {
			if got[r.ID] != 1 {
				t.Fatalf("record of batch %d is there %d times (position %d, told durable %d)", n, got[r.ID], position, durable)
			}
		}
	}
	if position < durable || durable < 20 {
		t.Errorf("position %d, told durable %d", position, durable)
	}
	if st := s.State(); len(st.Quarantined) > 0 || st.Days != 2 {
		t.Errorf("%+v", st)
	}
}

// TestDiskFull lets the kernel refuse to grow files: the error surfaces, the
// position stays, reading goes on, and the same Append succeeds later.
func TestDiskFull(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	s := open(t, embedded.Config{})
	appendAll(t, s, record.Position{Cluster: "a", ResourceVersion: "1"}, event("first", base, 1))
	big := event("big", base, 1)
	big.Message = "long"
	big.Raw = []byte(`"` + strings.Repeat("x", 2<<20) + `"`)

	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = 1 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	n, err := s.Append(t.Context(), []record.Record{big}, record.Position{Cluster: "a", ResourceVersion: "2"})
	if restore := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); restore != nil {
		t.Fatal(restore)
	}
	if err == nil || n != 0 || !strings.Contains(err.Error(), "2026-11-30") {
		t.Fatalf("appended %d, err %v", n, err)
	}
	if p, _, err := s.Position(t.Context(), "a"); err != nil || p.ResourceVersion != "1" {
		t.Errorf("position %+v, %v", p, err)
	}
	if got := len(ids(t, s, "")); got != 1 {
		t.Errorf("%d records, want 1", got)
	}
	n, err = s.Append(t.Context(), []record.Record{big}, record.Position{Cluster: "a", ResourceVersion: "2"})
	if err != nil || n != 1 {
		t.Errorf("after the disk has space: %d, %v", n, err)
	}
	if got := len(ids(t, s, "message:long")); got != 1 {
		t.Errorf("%d records, want 1", got)
	}
}

var errStop = errors.New("stop")

func TestFollowEndsWhenEmitFails(t *testing.T) {
	s := open(t, embedded.Config{})
	appendAll(t, s, record.Position{}, event("x", base, 1))
	err := s.Follow(t.Context(), store.Search{Limit: 1}, func([]record.Record) error { return errStop })
	if !errors.Is(err, errStop) {
		t.Errorf("err %v", err)
	}
}

// BenchmarkAppend reports records per second with durable batches of 500.
func BenchmarkAppend(b *testing.B) {
	s, err := embedded.Open(embedded.Config{Dir: b.TempDir(), MaxAge: math.MaxInt64 / 2, Now: func() time.Time { return base }})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	n := 0
	for b.Loop() {
		list := make([]record.Record, 500)
		for i := range list {
			n++
			r := event(fmt.Sprintf("6a7d9f1e-0000-4000-8000-%012d", n), base, 1)
			r.Reason, r.Type, r.Object = "BackOff", "Warning", record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("web-%d", n%5000)}
			r.Message = fmt.Sprintf("Back-off restarting failed container web in pod web-%d_default(6a7d9f1e-0000-4000-8000-%012d)", n%5000, n)
			r.Raw = []byte(`{"kind":"Event","apiVersion":"v1","metadata":{"name":"web-1.17a","namespace":"default","uid":"6a7d9f1e","resourceVersion":"1234","creationTimestamp":"2026-11-30T12:00:00Z"},"involvedObject":{"kind":"Pod","namespace":"default","name":"web-1","uid":"6a7d9f1e-0000-4000-8000-000000000000","apiVersion":"v1","resourceVersion":"1233","fieldPath":"spec.containers{web}"},"reason":"BackOff","message":"Back-off restarting failed container web in pod web-1","source":{"component":"kubelet","host":"node-1"},"firstTimestamp":"2026-11-30T12:00:00Z","lastTimestamp":"2026-11-30T12:00:00Z","count":1,"type":"Warning","eventTime":null,"reportingComponent":"kubelet","reportingInstance":"node-1"}`)
			list[i] = r
		}
		if _, err := s.Append(b.Context(), list, record.Position{Cluster: "a", ResourceVersion: fmt.Sprint(n), At: base}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(s.State().Bytes)/float64(n), "disk-B/record")
}
