package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		``:                                 "",
		`reason:BackOff AND kind:Pod`:      `(reason:"BackOff" AND kind:"Pod")`,
		`reason:BackOff kind:Pod`:          `(reason:"BackOff" AND kind:"Pod")`,
		`a OR b AND NOT c`:                 `(message:"a" OR (message:"b" AND NOT message:"c"))`,
		`NOT (a OR b) c`:                   `(NOT (message:"a" OR message:"b") AND message:"c")`,
		`NOT NOT a`:                        `NOT NOT message:"a"`,
		`Reason:(BackOff OR Failed*)`:      `(reason:"BackOff" OR reason:Failed*)`,
		`name:web-*-x*`:                    `name:web\-*\-x*`,
		`name:a***b`:                       `name:a*b`,
		`name:*`:                           `name:*`,
		`name:""`:                          `name:""`,
		`name:"a*b"`:                       `name:"a*b"`,
		`name:a\*b`:                        `name:"a*b"`,
		`uid:a:b`:                          `uid:"a:b"`,
		`back-off`:                         `message:"back off"`,
		`"Back-off  restarting"`:           `message:"back off restarting"`,
		`rest*`:                            `message:rest*`,
		`web-*`:                            `message:"web"`,
		`message:(pull* image)`:            `(message:pull* AND message:"image")`,
		`10.0.0.1:8080\:x`:                 ``,
		`count:3`:                          `count:[3 TO 3]`,
		`count:>3`:                         `count:[4 TO *]`,
		`count:<=-3`:                       `count:[* TO -3]`,
		`count:(1 OR >=7)`:                 `(count:[1 TO 1] OR count:[7 TO *])`,
		`occurrences:{2 TO 10]`:            `occurrences:[3 TO 10]`,
		`count:[9 TO 3]`:                   `count:[1 TO 0]`,
		`count:*`:                          `count:*`,
		`time:2026-11-30`:                  `time:[2026-11-30T00:00:00Z TO 2026-11-30T23:59:59.999999999Z]`,
		`time:<2026-11-30`:                 `time:[* TO 2026-11-29T23:59:59.999999999Z]`,
		`time:>=2026-11-30T10:00:00+02:00`: `time:[2026-11-30T08:00:00Z TO *]`,
		`not and or`:                       `(message:"not" AND message:"and" AND message:"or")`,
		`\AND x`:                           `(message:"and" AND message:"x")`,
	} {
		t.Run(in, func(t *testing.T) {
			e, err := query.Parse(in)
			if strings.HasPrefix(in, "10.0") {
				if err == nil {
					t.Fatal("want an error: 10.0.0.1 is no field")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := e.String(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]string{
		`foo:x`:                          `query, column 1: no field "foo"; to search the message put quotes around it; fields are cluster, type, `,
		`kind:Pod AND (a OR b`:           `query, column 14: the ( is never closed; add a )`,
		`a)`:                             `query, column 2: no ( opens this ); remove it or add one`,
		`()`:                             `query, column 2: a term must stand before )`,
		`"abc`:                           `query, column 1: the quote is never closed; add a "`,
		`a AND`:                          `query, column 6: a term is missing at the end`,
		`AND a`:                          `query, column 1: a term must stand before AND; to search the word itself write "AND"`,
		`a OR OR b`:                      `query, column 6: a term must stand before OR`,
		`reason:`:                        `query, column 7: a value must follow reason: at once`,
		`reason: x`:                      `query, column 7: a value must follow reason: at once`,
		`reason:name:x`:                  ``,
		`reason:(name:x)`:                `query, column 9: name: stands inside the group of reason:`,
		`reason:)`:                       `query, column 8: a value must follow reason:`,
		`count:x`:                        `query, column 7: count wants a whole number, got "x"`,
		`count:<-9223372036854775808`:    `query, column 7: count wants a whole number`,
		`count:1*`:                       `query, column 7: count takes no *; write a range, as in count:[1 TO *]`,
		`count:[1 5]`:                    `query, column 7: write a range as count:[1 TO *]`,
		`count:[1 TO`:                    `query, column 7: the range is never closed; write it as [1 TO 5]`,
		`time:yesterday`:                 `query, column 6: time wants a time such as 2026-11-30T10:00:00Z or a day`,
		`time:0001-01-01`:                `query, column 6: time wants a time`,
		`reason:[a TO b]`:                `query, column 8: reason has no order`,
		`[1 TO 2]`:                       `query, column 1: a range needs a field`,
		`-foo`:                           `query, column 1: "-" is no operator here; write NOT`,
		`f*o`:                            `query, column 1: a word of the message can only end in *`,
		`*`:                              `query, column 1: no letter or digit`,
		`é "--"`:                         `query, column 3: no letter or digit`,
		`a\`:                             `query, column 2: a character must follow \`,
		strings.Repeat("(", 40) + "a":    `nested deeper than 32`,
		strings.Repeat("NOT ", 40) + "a": `nested deeper than 32`,
		strings.Repeat("a ", 200):        `more than 128 terms`,
		strings.Repeat("a", 5000):        `longer than 4096 bytes`,
	} {
		t.Run(in, func(t *testing.T) {
			e, err := query.Parse(in)
			if want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatalf("parsed as %s", e)
			}
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	r := &record.Record{
		ID: "1", Kind: record.KindEvent, Cluster: "a", Type: "Warning", Reason: "BackOff", Count: 7, Occurrences: 4,
		Time:    time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC),
		Message: "Back-off restarting failed container=Größe in pod web-1_default(10.0.0.1)",
		Object:  record.Object{Kind: "Pod", Namespace: "default", Name: "web-1"},
	}
	for in, want := range map[string]bool{
		"":                           true,
		"reason:backoff AND kind:PO": false,
		"reason:backoff kind:pOd":    true,
		"name:web-*":                 true,
		"name:*eb*1":                 true,
		"name:web-1*1":               false,
		"name:*":                     true,
		"host:*":                     false,
		`host:""`:                    true,
		"restarting":                 true,
		"restart":                    false,
		"restart*":                   true,
		`"off restarting fail"`:      false,
		`"off restarting failed"`:    true,
		"off-restarting-fail*":       true,
		"GRÖßE":                      true,
		"10.0.0.1":                   true,
		"10.0.1":                     false,
		"count:>3":                   true,
		"count:[* TO 6]":             false,
		"time:2026-11-30":            true,
		"time:<2026-11-30T10:00:00Z": false,
		"NOT type:Normal":            true,
		"type:(Normal OR Warning)":   true,
		"record:gap":                 false,
	} {
		e, err := query.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := query.Match(e, r); got != want {
			t.Errorf("%s: got %v, want %v", in, got, want)
		}
	}
	if !query.Match(nil, r) {
		t.Error("nil must match everything")
	}
}

func TestTokensAreBounded(t *testing.T) {
	got := query.Tokens(strings.Repeat("ä", 300) + "\xff\x00A_b-½")
	want := []string{strings.Repeat("ä", 128), "a", "b", "½"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzParse checks that nothing panics, that errors fit on a line and point
// into the query, and that the rendering of a query means the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "a", `reason:BackOff AND kind:Pod`, `NOT (a OR "b c") name:x*y*`, `count:>=3 occurrences:{1 TO 5]`,
		`time:2026-11-30 time:[* TO 2026-11-30T10:00:00Z]`, `a\ b\*c`, `"\""`, "\x00\xff*", `uid:"*"`, `reason:(a AND NOT b*)`,
		`name:\-*`, `name:*\**`, "count:<-4611686018427387903",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		e, err := query.Parse(in)
		if err != nil {
			return
		}
		text := e.String()
		if len(text) > 4096 {
			return
		}
		again, err := query.Parse(text)
		if err != nil {
			t.Fatalf("%q renders as %q: %v", in, text, err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatalf("%q renders as %q: %s", in, text, diff)
		}
	})
}
