package query_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
)

func TestHints(t *testing.T) {
	for text, want := range map[string][]string{
		"a OR b AND NOT c":          nil,
		`a "or" \or reason:or`:      nil,
		"foo=bar x reason:a=b":      nil,
		"reason:BackOff or x":       {`"or" is searched as a word; the operator is OR`},
		"reason:(a And b)":          {`"And" is searched as a word; the operator is AND`},
		"not Reason=BackOff (":      {`"not" is searched as a word; the operator is NOT`, `"Reason=BackOff" is searched as words of the message; the field is asked for with reason:BackOff`},
		`unclosed "`:                nil,
		"":                          nil,
		"type:Warning count=3 \\":   {`"count=3" is searched as words of the message; the field is asked for with count:3`},
		"namespace=\"kube-system\"": {`"namespace=" is searched as words of the message; the field is asked for with namespace:`},
	} {
		if diff := cmp.Diff(want, query.Hints(text)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
