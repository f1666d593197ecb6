package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// TestEventsHostileText prints what a cluster should not have said: every
// document stays readable, says the same, and has no raw control character.
func TestEventsHostileText(t *testing.T) {
	const hostile = "a\u009b31m\u202eb\u2066\x7f\u0085\u2028\ufeff\uffff\x1b[0m \\U0010FF00 größe"
	s, url := eventServer(t)
	e := testEvent(1, time.Now())
	e.Message = hostile
	if _, err := s.Append(t.Context(), []record.Record{e}, record.Position{}); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "yaml"} {
		var out bytes.Buffer
		if _, err := events(t.Context(), &out, "--server", url, "-o", format); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		checkHostile(t, format, out.Bytes())
		var line bytes.Buffer
		p := eventPrinter{output: outputFormat(format), table: tablePrinter{w: &line}}
		doc, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.line(append(doc, '\n')); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		checkHostile(t, format+" stream", line.Bytes())
		var got struct{ Items []record.Record }
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v\n%s", format, err, out.String())
		}
		if format == "json" && got.Items[0].Message != hostile {
			t.Errorf("%s: %q", format, got.Items[0].Message)
		}
		if !strings.HasPrefix(got.Items[0].Message, "a\u009b31m\u202eb\u2066\x7f") {
			t.Errorf("%s: %q", format, got.Items[0].Message)
		}
	}
}

func checkHostile(t *testing.T, what string, out []byte) {
	t.Helper()
	for _, r := range string(out) {
		if unsafeToPrint(r) || r < ' ' && r != '\n' {
			t.Errorf("%s: raw %U in\n%q", what, r, out)
			return
		}
	}
}

// TestEventsHints asks for what cannot be there.
func TestEventsHints(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/clusters", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[{"id":"a"},{"id":"b"}]}`) })
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[]}`) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	t.Setenv(serverVariable, srv.URL)
	stderr, err := events(t.Context(), io.Discard, "--cluster", "b", "--cluster", "x", "--query", "reason:A or B")
	want := "hint: \"or\" is searched as a word; the operator is OR\nhint: no cluster \"x\" in the fleet; there are a, b\nno events match\n"
	if err != nil || stderr != want {
		t.Errorf("%v\n got %q\nwant %q", err, stderr, want)
	}
	_, err = events(t.Context(), io.Discard, "--since", "1h", "--until", "2h")
	if err == nil || !strings.Contains(err.Error(), "--since 1h is not before --until 2h") {
		t.Error(err)
	}
}
