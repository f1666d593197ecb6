// Package storetest checks that a store keeps the promises of package store:
// every store runs the same suite, with the in-memory matcher as the judge.
package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

// Store is what the suite needs.
type Store interface {
	store.Searcher
	Append(ctx context.Context, records []record.Record, position record.Position) (int, error)
}

// Run runs the suite; open gives an empty store that keeps the days before
// and after base.
func Run(t *testing.T, base time.Time, open func(t *testing.T) Store) {
	t.Run("queries agree with the matcher", func(t *testing.T) { testQueries(t, base, open(t)) })
	t.Run("pages neither repeat nor skip", func(t *testing.T) { testPaging(t, base, open(t)) })
	t.Run("insert if absent", func(t *testing.T) { testAbsent(t, base, open(t)) })
	t.Run("follow emits each record once", func(t *testing.T) { testFollow(t, base, open(t)) })
	t.Run("bad requests", func(t *testing.T) { testBad(t, open(t)) })
}

func add(t *testing.T, s Store, records []record.Record) {
	t.Helper()
	for chunk := range slices.Chunk(records, 200) {
		if n, err := s.Append(t.Context(), chunk, record.Position{}); err != nil || n != len(chunk) {
			t.Fatalf("appended %d of %d: %v", n, len(chunk), err)
		}
	}
}

func testQueries(t *testing.T, base time.Time, s Store) {
	records := Generate(1, 250, base)
	add(t, s, records)
	rnd := rand.New(rand.NewPCG(2, 3))
	for i := range 120 {
		text := Query(rnd, 3, base)
		e, err := query.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		q := store.Search{Query: e, Limit: store.MaxLimit}
		if i%3 == 0 {
			q.Clusters = []string{"a", "B"}
		}
		if i%4 == 0 {
			q.Since = base.Add(-time.Duration(rnd.IntN(36)) * time.Hour)
		}
		if i%5 == 0 {
			q.Until = base.Add(-time.Duration(rnd.IntN(12)) * time.Hour)
		}
		page, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want := map[string]record.Record{}
		for _, r := range records {
			if q.Match(&r) {
				want[r.ID] = r
			}
		}
		got := map[string]record.Record{}
		for _, r := range page.Items {
			got[r.ID] = r
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) != len(page.Items) || page.Next != "" {
			t.Fatalf("query %s (%d records, next %q): -matcher +store\n%s", text, len(page.Items), page.Next, diff)
		}
	}
}

func testPaging(t *testing.T, base time.Time, s Store) {
	records := Generate(4, 300, base)
	for i := range records { // many equal times, over three days
		records[i].Time = base.Add(-time.Duration(i/40) * 7 * time.Hour)
	}
	add(t, s, records)
	for _, limit := range []int{7, 40, 300, 1000} {
		var got []record.Record
		q := store.Search{Limit: limit}
		for {
			page, err := s.Search(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) > limit || page.Next != "" && len(page.Items) != limit {
				t.Fatalf("limit %d: a page of %d", limit, len(page.Items))
			}
			got = append(got, page.Items...)
			if q.After = page.Next; page.Next == "" {
				break
			}
		}
		seen := map[string]bool{}
		for i, r := range got {
			seen[r.ID] = true
			if i > 0 && r.Time.After(got[i-1].Time) {
				t.Fatalf("limit %d: record %d is newer than the one before", limit, i)
			}
		}
		if len(got) != 300 || len(seen) != 300 {
			t.Errorf("limit %d: %d records, %d different, want 300", limit, len(got), len(seen))
		}
	}
}

func testAbsent(t *testing.T, base time.Time, s Store) {
	records := Generate(5, 50, base)
	add(t, s, records)
	again := slices.Clone(records)
	for i := range again {
		again[i].Message = "another"
	}
	fresh := Generate(6, 10, base)
	n, err := s.Append(t.Context(), slices.Concat(again, fresh, fresh), record.Position{})
	if err != nil || n != 10 {
		t.Fatalf("appended %d new records, want 10: %v", n, err)
	}
	page, err := s.Search(t.Context(), store.Search{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != 60 {
		t.Errorf("%d records, want 60", len(page.Items))
	}
	for _, r := range page.Items {
		if r.Message == "another" {
			t.Fatal("a stored record was replaced")
		}
	}
}

func testFollow(t *testing.T, base time.Time, s Store) {
	records := Generate(7, 500, base)
	add(t, s, records[:100])
	e, err := query.Parse("NOT reason:Pulled")
	if err != nil {
		t.Fatal(err)
	}
	q := store.Search{Query: e, Limit: 20}
	want := map[string]bool{}
	for _, r := range records[100:] {
		if q.Match(&r) {
			want[r.ID] = true
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun, done := make(chan struct{}), make(chan error, 1)
	got, first := map[string]int{}, 0
	go func() {
		done <- s.Follow(ctx, q, func(list []record.Record) error {
			if first == 0 {
				first = len(list)
				close(begun)
			}
			for _, r := range list {
				if got[r.ID]++; want[r.ID] {
					delete(want, r.ID)
				}
			}
			if len(want) == 0 {
				cancel()
			}
			return nil
		})
	}()
	<-begun
	for chunk := range slices.Chunk(records[100:], 37) {
		if _, err := s.Append(t.Context(), chunk, record.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if first != 20 || len(want) > 0 {
		t.Errorf("first page of %d, want 20; %d records never came", first, len(want))
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("record %s came %d times", id, n)
		}
	}
}

func testBad(t *testing.T, s Store) {
	for _, q := range []store.Search{{Limit: 0}, {Limit: 1001}, {Limit: 1, After: "x"}, {Limit: 1, After: "ZTEuMQ"}} {
		if _, err := s.Search(t.Context(), q); err == nil {
			t.Errorf("%+v: no error", q)
		}
	}
}

// Generate makes n records with awkward values in the two days before base.
func Generate(seed uint64, n int, base time.Time) []record.Record {
	rnd := rand.New(rand.NewPCG(seed, 99))
	records := make([]record.Record, n)
	for i := range records {
		at := base.Add(-time.Duration(rnd.Int64N(int64(48 * time.Hour)))).UTC()
		records[i] = record.Record{
			ID: record.NewID("test", fmt.Sprint(seed), fmt.Sprint(i)), Kind: pick(rnd, record.KindEvent, record.KindEvent, record.KindGap),
			Cluster: pick(rnd, "a", "B", "b", "über"), Time: at, FirstTime: at.Add(-time.Hour),
			Type: pick(rnd, "Normal", "Warning", ""), Reason: pick(rnd, reasons...), Action: pick(rnd, "", "Binding"),
			Message: message(rnd), Count: rnd.Int64N(9), Occurrences: 1 + rnd.Int64N(3),
			Object: record.Object{
				APIVersion: "v1", Kind: pick(rnd, "Pod", "Node", "ReplicaSet"), Namespace: pick(rnd, "", "default", "kube-system"),
				Name: pick(rnd, names...), UID: fmt.Sprint(i % 7), FieldPath: pick(rnd, "", "spec.containers{web}"),
			},
			Source: record.Source{Component: pick(rnd, "kubelet", "scheduler"), Host: pick(rnd, "", "node-1")},
			Event:  record.Event{UID: fmt.Sprint(i), Name: fmt.Sprintf("e.%x", i), Namespace: "default", ResourceVersion: fmt.Sprint(i)},
		}
		if i%2 == 0 {
			records[i].Raw = []byte(`{"kind":"Event"}`)
		}
	}
	return records
}

var (
	reasons = []string{"BackOff", "backoff", "Back_Off", "Back%Off", "Failed", "FailedScheduling", "Pulled", ""}
	names   = []string{"web-1", "web-10", "Web_1", "w*b", `w\b`, "größe", "GRÖSSE", "x"}
	words   = []string{"Back-off", "restarting", "failed", "container=web", "10.0.0.1", "Größe", "GRÖẞE", "日本語", "\"quoted\"", "a_b", "½", "İx", "e\u0301", "--", "AND"}
)

func pick(rnd *rand.Rand, values ...string) string { return values[rnd.IntN(len(values))] }

func message(rnd *rand.Rand) string {
	list := make([]string, rnd.IntN(6))
	for i := range list {
		list[i] = pick(rnd, words...)
	}
	return strings.Join(list, pick(rnd, " ", ", ", "\n"))
}

// Query makes a random valid query over what Generate makes.
func Query(rnd *rand.Rand, depth int, base time.Time) string {
	if depth > 0 {
		switch rnd.IntN(6) {
		case 0, 1:
			return "(" + Query(rnd, depth-1, base) + pick(rnd, " AND ", " ") + Query(rnd, depth-1, base) + ")"
		case 2, 3:
			return "(" + Query(rnd, depth-1, base) + " OR " + Query(rnd, depth-1, base) + ")"
		case 4:
			return "NOT " + Query(rnd, depth-1, base)
		}
	}
	switch rnd.IntN(14) {
	case 0:
		return "reason:" + pick(rnd, "BACKOFF", "Back*", "*off", "*a*l*", `Back\_*`, "back%*", "*", `""`, "Back*Off")
	case 1:
		return "name:" + pick(rnd, "web-1", "WEB*", `w\*b`, `w\\b`, "größe", "GRÖ*", "*_*", "w?b", "*e*")
	case 2:
		return "cluster:" + pick(rnd, "a", "b", "ÜBER", "über")
	case 3:
		return pick(rnd, "namespace:*", `namespace:""`, "host:*", "message:*", "count:*", "action:bind*")
	case 4:
		return "count:" + pick(rnd, "3", ">3", ">=3", "<1", "[2 TO 5}", "{2 TO *]")
	case 5:
		return "occurrences:" + pick(rnd, "1", ">1", "(1 OR 3)")
	case 6:
		return "time:" + pick(rnd, ">", "<=") + base.Add(-time.Duration(rnd.IntN(48))*time.Hour).UTC().Format(time.RFC3339)
	case 7:
		return "time:" + pick(rnd, "", ">", "<", ">=", "<=") + base.AddDate(0, 0, -rnd.IntN(3)).UTC().Format(time.DateOnly)
	case 8:
		return pick(rnd, "type:warning", "kind:(pod OR NODE)", "record:gap", "component:kubelet", "event:e.1*", "event_uid:17", "uid:3", "api_version:v1", `field_path:*\{web\}`)
	case 9:
		return pick(rnd, `"Back-off restarting"`, `"restarting failed"`, `"10 0"`, `"größe"`, `"quoted a"`, `"AND"`)
	default:
		return pick(rnd, "back", "off", "rest*", "container=web", "container=w*", "10.0.0.1", "10.0*", "GRÖSSE", "größe", "grö*", "日本*", "½", "ix", "i*", "e\u0301", "e", "a_b", "b*")
	}
}
