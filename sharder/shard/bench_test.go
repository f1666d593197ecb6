package shard_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/internal/shardtest"
)

// BenchmarkShardScrape reports the CPU time of this process per 1,000 samples
// scraped and stored. The gateway that serves prepared bodies is in it.
func BenchmarkShardScrape(b *testing.B) {
	const series, targets = 2000, 20
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	bodies := make([][]byte, 16)
	for i := range bodies {
		var body bytes.Buffer
		body.WriteString("# TYPE http_requests_total counter\n")
		for n := range series {
			fmt.Fprintf(&body, "http_requests_total{code=\"200\",handler=\"/api/v1/things/%d\",method=\"GET\"} %d\n", n, i*1000+rng.IntN(1000))
		}
		bodies[i] = body.Bytes()
	}
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(bodies[int(n/targets)%len(bodies)])
	}))
	defer server.Close()
	s := shardtest.Start(b, "shard-0", b.TempDir())
	a := target.Assignment{Epoch: 1, Revision: 1, Pools: []target.Pool{shardtest.Pool("alpha", "app", "200ms")}}
	for i := range targets {
		id := fmt.Sprintf("%016x", i+1)
		a.Targets = append(a.Targets, target.Target{
			ID: id, Cluster: "alpha", Job: "app", Pool: "alpha/app", ScrapeURL: server.URL + "/clusters/alpha/targets/" + id + "/metrics",
			Labels: map[string]string{"cluster": "alpha", "job": "app", "instance": fmt.Sprintf("10.0.0.%d:80", i), "namespace": "shop", "pod": "app-" + id},
		})
	}
	s.Put(b, a)
	shardtest.Eventually(b, 10*time.Second, "the first scrapes are in", func() error {
		if n := scrapes.Load(); n < 2*targets {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	b.ResetTimer()
	first, cpu := scrapes.Load(), cpuTime(b)
	want := int64(b.N) * 1000 / series
	shardtest.Eventually(b, 10*time.Minute, "enough scrapes", func() error {
		if n := scrapes.Load() - first; n < want || n == 0 {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
	b.StopTimer()
	samples := float64((scrapes.Load() - first) * series)
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/samples*1000, "cpu-us/1000samples")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStatus5000Targets reads the status of a shard that scrapes 5,000
// targets every 30 s.
func BenchmarkStatus5000Targets(b *testing.B) {
	g := shardtest.NewGateway(b)
	s := shardtest.Start(b, "shard-0", b.TempDir())
	a := target.Assignment{Epoch: 1, Revision: 1, Pools: []target.Pool{shardtest.Pool("alpha", "node", "30s")}}
	for i := range 5000 {
		a.Targets = append(a.Targets, g.Target("alpha", "node", i+1, 1))
	}
	s.Put(b, a)
	shardtest.Eventually(b, 2*time.Minute, "all are scraped", func() error {
		for _, t := range a.Targets {
			if g.Scrapes(t.ID) == 0 {
				return fmt.Errorf("target %s is not", t.ID)
			}
		}
		return nil
	})
	b.ResetTimer()
	for b.Loop() {
		if n := len(s.Status(b).Targets); n != 5000 {
			b.Fatalf("%d targets", n)
		}
	}
}
