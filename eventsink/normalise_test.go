package eventsink

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestNormalise turns every testdata/normalise/*.json into a record and
// compares it with the file beside it; *.bad.json must be refused.
func TestNormalise(t *testing.T) {
	inputs, err := filepath.Glob("testdata/normalise/*.json")
	if err != nil || len(inputs) == 0 {
		t.Fatal(err, inputs)
	}
	for _, path := range inputs {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, key, err := normalise("prod-1", raw)
			got := ""
			if err != nil {
				got = "error: " + err.Error() + "\n"
			} else {
				if again, _, _ := normalise("prod-1", raw); cmp.Diff(r, again) != "" {
					t.Error("the second time gives another record")
				}
				if other, _, _ := normalise("prod-2", raw); other.ID == r.ID {
					t.Error("two clusters share an ID")
				}
				if strings.Contains(string(r.Raw), "managedFields") || key.UID != r.Event.UID || key.Created.IsZero() {
					t.Error("raw or key")
				}
				b, err := json.MarshalIndent(r, "", " ")
				if err != nil {
					t.Fatal(err)
				}
				got = string(b) + "\n"
			}
			if bad := strings.HasSuffix(path, ".bad.json"); bad != (err != nil) {
				t.Errorf("err %v", err)
			}
			golden := strings.TrimSuffix(path, ".json") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOccurrences(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		count int64
		last  time.Time
		rv    string
		seen  *record.Seen
		want  int64
	}{
		"new":                      {1, at, "5", nil, 1},
		"new, counted upstream":    {7, at, "5", nil, 7},
		"one more":                 {3, at, "6", &record.Seen{Count: 2, LastTime: at, ResourceVersion: "5"}, 1},
		"jump":                     {7, at, "6", &record.Seen{Count: 3, LastTime: at, ResourceVersion: "5"}, 4},
		"same version":             {7, at, "5", &record.Seen{Count: 3, LastTime: at, ResourceVersion: "5"}, 0},
		"only metadata changed":    {3, at, "6", &record.Seen{Count: 3, LastTime: at, ResourceVersion: "5"}, 0},
		"time moves, count stands": {1, at.Add(1), "6", &record.Seen{Count: 1, LastTime: at, ResourceVersion: "5"}, 1},
		"older version":            {2, at.Add(-1), "4", &record.Seen{Count: 3, LastTime: at, ResourceVersion: "5"}, 0},
	} {
		r := record.Record{Count: c.count, LastTime: c.last, Event: record.Event{ResourceVersion: c.rv}}
		var seen record.Seen
		if c.seen != nil {
			seen = *c.seen
		}
		if got := occurrences(r, seen, c.seen != nil); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for failures := range 100 {
		for _, random := range []float64{0, 0.5, 0.999} {
			if d := backoff(failures, random); d < minBackoff/2 || d > maxBackoff {
				t.Errorf("backoff(%d, %v) = %s", failures, random, d)
			}
		}
	}
	if backoff(3, 0.5) <= backoff(0, 0.5) {
		t.Error("it does not grow")
	}
}

// FuzzNormalise checks that nothing an API server could send panics, and that
// what is accepted can be stored.
func FuzzNormalise(f *testing.F) {
	inputs, _ := filepath.Glob("testdata/normalise/*.json")
	for _, path := range inputs {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, _, err := normalise("c", raw)
		if err != nil {
			return
		}
		if r.Count < 1 || r.ID == "" || strings.Contains(r.Message+r.Reason+r.Object.Name, "\x00") || !json.Valid(r.Raw) {
			t.Errorf("%+v", r)
		}
		if y := r.Time.Year(); !r.Time.IsZero() && (y < 1970 || y >= 2200) {
			t.Errorf("time %s", r.Time)
		}
	})
}

// FuzzList checks the streaming decoder of lists.
func FuzzList(f *testing.F) {
	f.Add(`{"kind":"EventList","metadata":{"resourceVersion":"5","continue":"x"},"items":[{"a":1},{"b":2}]}`)
	f.Add(`{"items":null,"metadata":{}}`)
	f.Add(`{"items":{}}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		_, err := decodeList(strings.NewReader(text), func(json.RawMessage) error { n++; return nil })
		var list struct{ Items []json.RawMessage }
		if err == nil && json.Unmarshal([]byte(text), &list) == nil && strings.Count(text, "items") == 1 && len(list.Items) != n {
			t.Errorf("%d items, want %d", n, len(list.Items))
		}
	})
}

// TestEffectiveTime bounds the time by what else the Event says.
func TestEffectiveTime(t *testing.T) {
	const created = "2026-11-30T10:00:00Z"
	for name, c := range map[string]struct{ last, managed, want string }{
		"ordinary":                        {"2026-11-30T10:30:00Z", "2026-11-30T10:30:00Z", "2026-11-30T10:30:00Z"},
		"a little ahead":                  {"2026-11-30T10:34:00Z", "2026-11-30T10:30:00Z", "2026-11-30T10:34:00Z"},
		"far ahead":                       {"2199-01-01T00:00:00Z", "2026-11-30T10:30:00Z", "2026-11-30T10:30:00Z"},
		"never said when written":         {"2026-12-02T10:00:00Z", "", "2026-12-02T10:00:00Z"},
		"never said, far ahead":           {"2199-01-01T00:00:00Z", "", created},
		"managed without time, far ahead": {"2100-01-01T00:00:00Z", "x", created},
		"no time at all":                  {"9999-01-01T00:00:00Z", "", created},
	} {
		raw := `{"metadata":{"name":"e","uid":"u","resourceVersion":"5","creationTimestamp":"` + created +
			`","managedFields":[{"time":"` + c.managed + `"}]},"lastTimestamp":"` + c.last + `","count":2}`
		r, _, err := normalise("a", []byte(raw))
		if err != nil || r.Time.Format(time.RFC3339) != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, r.Time, c.want, err)
		}
	}
}
