// Package shardtest runs real shards and scripted gateways in tests.
package shardtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder/shard"
)

// Shard is a running shard.
type Shard struct {
	Name string
	URL  string
	Dir  string

	stop func()
}

// Stop ends the shard as SIGTERM would and waits for it.
func (s *Shard) Stop() { s.stop() }

// Start runs a shard with its data in dir and waits until it is ready. It is
// stopped at the end of the test.
func Start(tb testing.TB, name, dir string) *Shard { return StartAt(tb, name, dir, "127.0.0.1:0") }

// StartAt is Start on a given address, for a shard that comes back.
func StartAt(tb testing.TB, name, dir, address string) *Shard {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	base := "http://" + listener.Addr().String()
	s, err := shard.New(shard.Config{Name: name, Replica: "0", DataDir: dir, ExternalURL: base, StripeSize: 512})
	if err != nil {
		tb.Fatalf("shard %s: %v", name, err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	out := &Shard{Name: name, URL: base, Dir: dir}
	out.stop = sync.OnceFunc(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("shard %s: close: %v", name, err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("shard %s: serve: %v", name, err)
		}
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("shard %s: %v", name, err)
		}
	})
	tb.Cleanup(out.stop)
	Eventually(tb, 20*time.Second, "shard "+name+" is ready", func() error {
		if !s.Ready() {
			return fmt.Errorf("not ready")
		}
		return nil
	})
	return out
}

// Status reads the shard's status.
func (s *Shard) Status(tb testing.TB) target.Status {
	tb.Helper()
	var out target.Status
	if code := call(tb, http.MethodGet, s.URL+"/fleetwatch/v1/status", nil, &out); code != http.StatusOK {
		tb.Fatalf("status of %s: HTTP %d", s.Name, code)
	}
	return out
}

// Target is the shard's status of one target; nil when it has none.
func (s *Shard) Target(tb testing.TB, id string) *target.TargetStatus {
	tb.Helper()
	for _, t := range s.Status(tb).Targets {
		if t.ID == id {
			return &t
		}
	}
	return nil
}

// Put sends an assignment and gives the answer and its HTTP status.
func (s *Shard) Put(tb testing.TB, a target.Assignment) (target.Applied, int) {
	tb.Helper()
	var out target.Applied
	code := call(tb, http.MethodPut, s.URL+"/fleetwatch/v1/assignment", a, &out)
	return out, code
}

// Probe asks for a trial scrape.
func (s *Shard) Probe(tb testing.TB, req target.ProbeRequest) (target.Probe, int) {
	tb.Helper()
	var out target.Probe
	code := call(tb, http.MethodPost, s.URL+"/fleetwatch/v1/probe", req, &out)
	return out, code
}

func call(tb testing.TB, method, to string, body, into any) int {
	tb.Helper()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			tb.Fatal(err)
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(tb.Context()), method, to, reader)
	if err != nil {
		tb.Fatal(err)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, to, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, to, err)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, into); err != nil {
			tb.Fatalf("%s %s: %v in %q", method, to, err, data)
		}
	}
	return answer.StatusCode
}

// Series is one result of a query: values by time in seconds.
type Series struct {
	Metric map[string]string
	Points map[float64]float64
}

// Value is the only point of an instant query's series.
func (s Series) Value() float64 {
	for _, v := range s.Points {
		return v
	}
	return math.NaN()
}

// Query evaluates expr at a moment against a Prometheus API.
func Query(tb testing.TB, base, expr string, at time.Time) []Series {
	tb.Helper()
	return query(tb, base+"/api/v1/query", url.Values{"query": {expr}, "time": {seconds(at)}})
}

// QueryRange evaluates expr over a range.
func QueryRange(tb testing.TB, base, expr string, from, to time.Time, step time.Duration) []Series {
	tb.Helper()
	return query(tb, base+"/api/v1/query_range", url.Values{
		"query": {expr}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {step.String()},
	})
}

func query(tb testing.TB, endpoint string, form url.Values) []Series {
	tb.Helper()
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  *[2]any
				Values [][2]any
			}
		}
	}
	if code := call(tb, http.MethodGet, endpoint+"?"+form.Encode(), nil, &answer); code != http.StatusOK {
		tb.Fatalf("query %s: HTTP %d", form.Get("query"), code)
	}
	var out []Series
	for _, r := range answer.Data.Result {
		s := Series{Metric: r.Metric, Points: map[float64]float64{}}
		if r.Value != nil {
			r.Values = append(r.Values, *r.Value)
		}
		for _, pair := range r.Values {
			v, err := strconv.ParseFloat(fmt.Sprint(pair[1]), 64)
			at, ok := pair[0].(float64)
			if err != nil || !ok {
				tb.Fatalf("query %s: point %v", form.Get("query"), pair)
			}
			s.Points[at] = v
		}
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return fmt.Sprint(out[i].Metric) < fmt.Sprint(out[j].Metric) })
	return out
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// Eventually polls until check gives nil and fails the test when it does not
// in time.
func Eventually(tb testing.TB, within time.Duration, what string, check func() error) {
	tb.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within %s: %v", what, within, err)
		}
	}
}

// Gateway answers scrapes as a collector's does: a fixed number of counters
// for each target, that all grow by one a second.
type Gateway struct {
	*httptest.Server

	mu       sync.Mutex
	counters map[string]int           // by target ID
	status   map[string]int           // HTTP status other than 200
	held     map[string]chan struct{} // scrapes that wait
	scrapes  map[string]int
	start    time.Time
}

// NewGateway starts a gateway that is closed at the end of the test.
func NewGateway(tb testing.TB) *Gateway {
	tb.Helper()
	g := &Gateway{
		counters: map[string]int{}, status: map[string]int{}, held: map[string]chan struct{}{},
		scrapes: map[string]int{}, start: time.Now(),
	}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	tb.Cleanup(g.Close)
	return g
}

// Fail makes scrapes of a target answer an HTTP status; 0 heals it.
func (g *Gateway) Fail(id string, status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status[id] = status
}

// Hold makes scrapes of a target wait until release is called.
func (g *Gateway) Hold(id string) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := make(chan struct{})
	g.held[id] = wait
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.held, id)
		close(wait)
	})
}

// Scrapes counts the requests for a target so far.
func (g *Gateway) Scrapes(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.scrapes[id]
}

// Resize sets how many counters a target shows.
func (g *Gateway) Resize(id string, counters int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counters[id] = counters
}

// Target adds a target with so many counters. IDs are 16 hex digits of n.
func (g *Gateway) Target(cluster, job string, n, counters int) target.Target {
	id := fmt.Sprintf("%016x", n)
	g.Resize(id, counters)
	address := fmt.Sprintf("10.0.%d.%d:9100", n/256, n%256)
	return target.Target{
		ID: id, Cluster: cluster, Job: job, Pool: cluster + "/" + job,
		Address:   "https://" + address + "/metrics",
		ScrapeURL: g.URL + "/clusters/" + cluster + "/targets/" + id + "/metrics",
		Labels:    map[string]string{"cluster": cluster, "job": job, "instance": address},
	}
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 6 {
		http.NotFound(w, r)
		return
	}
	id := parts[4]
	g.mu.Lock()
	g.scrapes[id]++
	n, known := g.counters[id]
	status, wait := g.status[id], g.held[id]
	g.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case status != 0:
		http.Error(w, "scripted failure", status)
	case !known:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		value := strconv.FormatFloat(time.Since(g.start).Seconds(), 'f', 3, 64)
		var body bytes.Buffer
		body.WriteString("# TYPE work_total counter\n")
		for i := range n {
			body.WriteString(`work_total{n="` + strconv.Itoa(i) + `"} ` + value + "\n")
		}
		_, _ = w.Write(body.Bytes())
	}
}

// Pool is a pool of a job with an interval and a timeout.
func Pool(cluster, job, interval string, more ...string) target.Pool {
	name := cluster + "/" + job
	lines := append([]string{"job_name: " + name, "scrape_interval: " + interval, "scrape_timeout: " + interval}, more...)
	return target.Pool{Name: name, Config: strings.Join(lines, "\n")}
}
