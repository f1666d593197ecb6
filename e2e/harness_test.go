// Package e2e runs the whole program on real clusters: `fleetwatch up` with its
// testbed, asked over HTTP and by its own command line, hurt and healed.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/testprogram"
)

// instance is one `fleetwatch up`.
type instance struct {
	t        *testing.T // of the step that runs
	root     *testing.T // of the whole life
	dir      string
	portBase int
	args     []string

	cmd  *exec.Cmd
	out  *buffer
	done chan error
}

// start runs `fleetwatch up` and returns once /readyz answers 200.
func start(t *testing.T, dir string, portBase int, args ...string) *instance {
	t.Helper()
	i := &instance{t: t, root: t, dir: dir, portBase: portBase, args: args}
	i.run()
	i.waitReady(4 * time.Minute)
	return i
}

func (i *instance) run() {
	i.t.Helper()
	args := append([]string{"up", "--data-dir", i.dir, "--port-base", strconv.Itoa(i.portBase)}, i.args...)
	i.out = &buffer{}
	i.done = make(chan error, 1)
	i.cmd = exec.Command(testprogram.Path(i.t, "fleetwatch"), args...) //nolint:noctx // stopped by the test with a signal
	i.cmd.Stdout, i.cmd.Stderr = i.out, i.out
	i.cmd.Env = append(os.Environ(), "KUBECONFIG=")
	// If the test dies, the program must not stay.
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := i.cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	cmd, out, done := i.cmd, i.out, i.done
	go func() { done <- cmd.Wait() }()
	i.root.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that the test has stopped it
		if i.root.Failed() {
			i.root.Logf("output of fleetwatch up:\n%s", out.tail())
		}
	})
}

// waitReady fails the test at once when the program ends instead.
func (i *instance) waitReady(timeout time.Duration) {
	i.t.Helper()
	i.eventually(timeout, "/readyz to answer 200", func() error {
		select {
		case err := <-i.done:
			i.done <- err
			i.t.Fatalf("fleetwatch up ended: %v\n%s", err, i.out.tail())
		default:
		}
		_, err := i.get("/readyz")
		return err
	})
}

// stop sends SIGTERM and waits for the end.
func (i *instance) stop() {
	i.t.Helper()
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		i.t.Fatal(err)
	}
	select {
	case err := <-i.done:
		if err != nil {
			i.t.Fatalf("fleetwatch up: %v\n%s", err, i.out.tail())
		}
	case <-time.After(90 * time.Second):
		i.t.Fatalf("fleetwatch up does not stop\n%s", i.out.tail())
	}
}

func (i *instance) url(offset int) string {
	return "http://127.0.0.1:" + strconv.Itoa(i.portBase+offset)
}

func (i *instance) get(path string) ([]byte, error) { return httpGet(i.t.Context(), i.url(0)+path) }

func httpGet(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return body, fmt.Errorf("%s: %s: %s", address, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

// items gets a list of the API.
func items[T any](i *instance, path string) []T {
	i.t.Helper()
	body, err := i.get(path)
	if err != nil {
		i.t.Fatal(err)
	}
	var list struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		i.t.Fatalf("%s: %v in %s", path, err, body)
	}
	return list.Items
}

// sample is one series of an instant query, its value as a number.
type sample struct {
	labels map[string]string
	value  float64
}

// query asks Thanos Query; at is the evaluation time, zero for now.
func (i *instance) query(expr string, at time.Time) ([]sample, error) {
	v := url.Values{"query": {expr}}
	if !at.IsZero() {
		v.Set("time", strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64))
	}
	body, err := httpGet(i.t.Context(), i.url(1)+"/api/v1/query?"+v.Encode())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
		Warnings []string
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Warnings) > 0 {
		return nil, fmt.Errorf("query %s: warnings %q", expr, answer.Warnings)
	}
	var samples []sample
	for _, r := range answer.Data.Result {
		f, err := strconv.ParseFloat(r.Value[1].(string), 64)
		if err != nil {
			return nil, err
		}
		samples = append(samples, sample{r.Metric, f})
	}
	return samples, nil
}

// rangeQuery returns the points of the only series of expr, by Unix second.
func (i *instance) rangeQuery(expr string, from, to time.Time, step time.Duration) (map[int64]float64, error) {
	v := url.Values{
		"query": {expr},
		"start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	}
	body, err := httpGet(i.t.Context(), i.url(1)+"/api/v1/query_range?"+v.Encode())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Values [][2]any
			}
		}
		Warnings []string
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Warnings) > 0 || len(answer.Data.Result) != 1 {
		return nil, fmt.Errorf("query %s: %d series, warnings %q", expr, len(answer.Data.Result), answer.Warnings)
	}
	points := map[int64]float64{}
	for _, p := range answer.Data.Result[0].Values {
		f, err := strconv.ParseFloat(p[1].(string), 64)
		if err != nil {
			return nil, err
		}
		points[int64(p[0].(float64))] = f
	}
	return points, nil
}

// cli runs a fleetwatch command against this instance and returns its output
// and exit code.
func (i *instance) cli(args ...string) (stdout, stderr string, code int) {
	i.t.Helper()
	return run(i.t, testprogram.Path(i.t, "fleetwatch"), append(args, "--server", i.url(0))...)
}

func run(t *testing.T, path string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return o.String(), e.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("%s %v: %v", path, args, err)
	}
	return o.String(), e.String(), 0
}

// testbed runs a testbed command on this instance's testbed and fails on error.
func (i *instance) testbed(args ...string) string {
	i.t.Helper()
	out, stderr, code := run(i.t, testprogram.Path(i.t, "testbed"), append(args, "--dir", filepath.Join(i.dir, "testbed"))...)
	if code != 0 {
		i.t.Fatalf("testbed %v: exit %d: %s", args, code, stderr)
	}
	return out
}

func (i *instance) kubeconfig() string { return filepath.Join(i.dir, "testbed", "kubeconfig") }

// eventually polls until check returns nil, at least once, and fails the test
// with the last error when the time is over.
func (i *instance) eventually(timeout time.Duration, what string, check func() error) time.Duration {
	i.t.Helper()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > timeout {
			i.t.Fatalf("waited %s for %s: %v", timeout, what, err)
		}
		<-tick.C
	}
}

// descendants lists the processes below pid, itself excluded.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	children := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parent := regexp.MustCompile(`^(\d+) \(.*\) \S (\d+) `)
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		m := parent.FindStringSubmatch(strings.ReplaceAll(string(stat), "\n", " "))
		if m == nil {
			continue
		}
		child, _ := strconv.Atoi(m[1])
		of, _ := strconv.Atoi(m[2])
		children[of] = append(children[of], child)
	}
	var all []int
	for queue := []int{pid}; len(queue) > 0; {
		p := queue[0]
		queue = append(queue[1:], children[p]...)
		all = append(all, children[p]...)
	}
	return all
}

// alive reports whether the process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// buffer collects output while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// tail is the end of it, short enough for a test's log.
func (b *buffer) tail() string {
	s := b.String()
	return s[max(0, len(s)-8000):]
}
