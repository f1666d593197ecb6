package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

// eventServer serves records as `fleetwatch up` does.
func eventServer(t *testing.T) (*embedded.Store, string) {
	t.Helper()
	s, err := embedded.Open(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/events", store.Handler(s, done))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		close(done)
		srv.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, srv.URL
}

func testEvent(i int, at time.Time) record.Record {
	return record.Record{
		ID: record.NewID(fmt.Sprint(i)), Kind: record.KindEvent, Cluster: "a", Time: at, Type: "Warning", Reason: "BackOff",
		Message: fmt.Sprintf("Back-off\nrestarting \x1b[31m%d", i), Count: int64(i), Occurrences: 1,
		Object: record.Object{Kind: "Pod", Namespace: "default", Name: "web-1"}, Source: record.Source{Component: "kubelet", Host: "node-1"},
	}
}

func events(ctx context.Context, stdout io.Writer, args ...string) (stderr string, err error) {
	cmd := newEventsCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var errOut bytes.Buffer
	cmd.SetOut(stdout)
	cmd.SetErr(&errOut)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return errOut.String(), err
}

func TestEventsTable(t *testing.T) {
	s, url := eventServer(t)
	var list []record.Record
	for i := range 3 {
		list = append(list, testEvent(i+1, time.Now().Add(-time.Duration(i)*time.Hour)))
	}
	if _, err := s.Append(t.Context(), list, record.Position{}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	stderr, err := events(t.Context(), &out, "--server", url, "--query", "reason:BackOff AND kind:Pod", "--limit", "2", "--since", "5h")
	if err != nil {
		t.Fatal(err)
	}
	want := `TIME   CLUSTER   NAMESPACE   TYPE      REASON    OBJECT      COUNT   MESSAGE
60m    a         default     Warning   BackOff   pod/web-1   2       Back-off restarting  [31m2
0s     a         default     Warning   BackOff   pod/web-1   1       Back-off restarting  [31m1
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if stderr != "these are the newest 2; there are more with --limit\n" {
		t.Error(stderr)
	}
	if stderr, err = events(t.Context(), &out, "--server", url, "--cluster", "b"); err != nil || stderr != "no events match\n" {
		t.Error(stderr, err)
	}
}

func TestEventsFormats(t *testing.T) {
	s, url := eventServer(t)
	if _, err := s.Append(t.Context(), []record.Record{testEvent(1, time.Now())}, record.Position{}); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{
		"json": `"reason": "BackOff"`, "yaml": "- cluster: a\n", "wide": "kubelet, node-1",
	} {
		var out bytes.Buffer
		if _, err := events(t.Context(), &out, "--server", url, "-o", format); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}
	}
}

func TestEventsPages(t *testing.T) {
	s, url := eventServer(t)
	var list []record.Record
	for i := range 2500 {
		list = append(list, testEvent(i, time.Now().Add(-time.Duration(i)*time.Millisecond)))
	}
	if _, err := s.Append(t.Context(), list, record.Position{}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := events(t.Context(), &out, "--server", url, "-o", "json", "--limit", "2300"); err != nil {
		t.Fatal(err)
	}
	var page store.Page
	if err := json.Unmarshal(out.Bytes(), &page); err != nil || len(page.Items) != 2300 || page.Items[2299].Count != 0 {
		t.Errorf("%d, %v", len(page.Items), err)
	}
}

// notifier tells when a line arrives.
type notifier struct{ lines chan string }

func (n *notifier) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		n.lines <- line
	}
	return len(p), nil
}

func TestEventsFollow(t *testing.T) {
	s, url := eventServer(t)
	if _, err := s.Append(t.Context(), []record.Record{testEvent(1, time.Now())}, record.Position{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &notifier{lines: make(chan string, 16)}
	done := make(chan error, 1)
	go func() {
		_, err := events(ctx, out, "--server", url, "-f", "--query", "count:<3")
		done <- err
	}()
	if head, first := <-out.lines, <-out.lines; !strings.HasPrefix(head, "TIME") || !strings.Contains(first, "31m1") {
		t.Error(head, first)
	}
	for i := 5; i >= 2; i-- {
		if _, err := s.Append(t.Context(), []record.Record{testEvent(i, time.Now())}, record.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	if line := <-out.lines; !strings.Contains(line, "31m2") {
		t.Error(line)
	}
	cancel() // as Ctrl-C does
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEventsBadInput(t *testing.T) {
	_, url := eventServer(t)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer other.Close()
	for want, args := range map[string][]string{
		"no Fleetwatch answers at " + nobody + " (":                 {"--server", nobody},
		"--server: want a URL such as http://127.0.0.1:9700":        {"--server", "ftp://x"},
		"--since: want a duration such as 1h or 7d, or a time such": {"--since", "yesterday"},
		"--until: want a duration":                                  {"--until", "x"},
		"want table, wide, json or yaml":                            {"-o", "xml"},
		`--query: column 1: no field "foo"`:                         {"--query", "foo:x"},
		"--limit: want 1 to 100000, got 0":                          {"--limit", "0"},
		"--limit: want 0 to 1000, got 5000":                         {"--limit", "5000", "-f"},
		"--until and --follow exclude each other":                   {"--until", "1h", "-f"},
		"did not answer as Fleetwatch does":                         {"--server", other.URL},
		"answered 404 Not Found to /x/api/v1/events; check":         {"--server", url + "/x"},
		"unknown command":                                           {"extra"},
	} {
		if len(args) < 2 || args[0] != "--server" {
			args = append(args, "--server", url)
		}
		_, err := events(t.Context(), io.Discard, args...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v:\n got %v\nwant %s", args, err, want)
		}
	}
}
