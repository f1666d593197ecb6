package query

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Expr is a parsed query: one of All, And, Or, Not, Keyword, Exists, Words
// and Range. Treat it as read-only.
type Expr interface {
	// String renders the expression in the query language.
	String() string
	expr()
}

// All matches every record.
type All struct{}

// And matches when all of List match; List has at least two members.
type And struct{ List []Expr }

// Or matches when one of List matches; List has at least two members.
type Or struct{ List []Expr }

// Not matches when X does not.
type Not struct{ X Expr }

// Keyword compares a whole keyword field, ignoring the case of ASCII letters.
// Between two parts stands any run of characters; one part is an exact match.
type Keyword struct {
	Field Field
	Parts []string
}

// Exists matches when the field is not empty.
type Exists struct{ Field Field }

// Words matches when the tokens stand in the message one after another.
// With Prefix the last token need only begin like the last of Tokens.
type Words struct {
	Tokens []string
	Prefix bool
}

// Range matches when Lo <= field <= Hi. Times are nanoseconds since 1970.
type Range struct {
	Field  Field
	Lo, Hi int64
}

func (All) expr()     {}
func (And) expr()     {}
func (Or) expr()      {}
func (Not) expr()     {}
func (Keyword) expr() {}
func (Exists) expr()  {}
func (Words) expr()   {}
func (Range) expr()   {}

func (All) String() string       { return "" }
func (e And) String() string     { return join(e.List, " AND ") }
func (e Or) String() string      { return join(e.List, " OR ") }
func (e Not) String() string     { return "NOT " + e.X.String() }
func (e Exists) String() string  { return e.Field.Name + ":*" }
func (e Keyword) String() string { return e.Field.Name + ":" + e.value() }

func (e Keyword) value() string {
	if len(e.Parts) == 1 {
		return quote(e.Parts[0])
	}
	parts := make([]string, len(e.Parts))
	for i, p := range e.Parts {
		parts[i] = escape(p)
	}
	return strings.Join(parts, "*")
}

func (e Words) String() string {
	if e.Prefix {
		return "message:" + strings.Join(e.Tokens, "-") + "*"
	}
	return "message:" + quote(strings.Join(e.Tokens, " "))
}

func (e Range) String() string {
	return fmt.Sprintf("%s:[%s TO %s]", e.Field.Name, e.bound(e.Lo), e.bound(e.Hi))
}

func (e Range) bound(v int64) string {
	switch {
	case v == math.MinInt64 || v == math.MaxInt64:
		return "*"
	case e.Field.Type == Time:
		return time.Unix(0, v).UTC().Format(time.RFC3339Nano)
	default:
		return fmt.Sprint(v)
	}
}

func join(list []Expr, op string) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = e.String()
	}
	return "(" + strings.Join(parts, op) + ")"
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// escape makes s a literal part of an unquoted word.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if isSpecial(r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
