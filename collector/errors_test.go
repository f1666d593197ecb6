package collector_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// TestErrors: the errors are those of the latest fetches, without parameters,
// and go with a success or with the target.
func TestErrors(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	host, port := serveTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "up 1")
	})
	refuses := annotatedPod("two", "127.0.0.1", "1", nil)
	api := newFakeAPI(t, annotatedPod("one", host, port, nil), refuses)
	r := start(t, api, nil)
	list := r.await(t, "two pods", func(l target.List) bool { return l.Synced && len(l.Targets) == 2 })
	expect := func(what string, want ...string) {
		t.Helper()
		eventually(t, what, func() bool {
			_, body := get(t, r.url+"/clusters/a/errors", nil)
			var answer struct {
				Errors map[string]string `json:"errors"`
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatal(err)
			}
			for _, text := range want {
				if !strings.Contains(body, text) {
					return false
				}
			}
			return len(answer.Errors) == len(want)
		})
	}
	fetch := func() {
		for _, x := range list.Targets {
			get(t, x.ScrapeURL, nil)
		}
	}
	if _, body := get(t, r.url+"/clusters/a/errors", nil); body != `{"errors":{}}` {
		t.Errorf("before any fetch: %s", body)
	}
	fetch()
	expect("both failed", `"status_4xx: the target answers 401 Unauthorized"`, `"connection_refused: dial tcp 127.0.0.1:1: connect: connection refused"`)
	broken.Store(false)
	fetch()
	expect("one works again", `"connection_refused: dial tcp 127.0.0.1:1: connect: connection refused"`)
	api.remove(refuses)
	expect("the other is gone")
}
