package query

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// term gives a token its meaning for a field; fielded says that the field was
// named and not taken for granted.
func term(f Field, t token, fielded bool) (Expr, error) {
	if fielded && t.kind == tokWord && len(t.parts) > 1 && strings.Join(t.parts, "") == "" {
		return Exists{f}, nil
	}
	switch f.Type {
	case Number, Time:
		return rangeTerm(f, t)
	case TypeText:
		return wordsTerm(t)
	case TypeKeyword:
	}
	if t.kind == tokRange {
		return nil, errorAt(t.pos, "%s has no order: ranges work on count, occurrences and time", f.Name)
	}
	return Keyword{f, squeeze(t.parts)}, nil
}

// squeeze removes the empty parts between adjacent stars.
func squeeze(parts []string) []string {
	if len(parts) < 3 {
		return parts
	}
	inner := slices.DeleteFunc(slices.Clone(parts[1:len(parts)-1]), func(s string) bool { return s == "" })
	return slices.Concat(parts[:1], inner, parts[len(parts)-1:])
}

func wordsTerm(t token) (Expr, error) {
	if t.kind == tokRange {
		return nil, errorAt(t.pos, "message has no order: ranges work on count, occurrences and time")
	}
	text := t.parts[0]
	if t.kind == tokWord && t.plain && strings.ContainsAny(text[:min(1, len(text))], "-+!") {
		return nil, errorAt(t.pos, "%q is no operator here; write NOT to exclude, or put quotes around the word", text[:1])
	}
	star := len(t.parts) > 1
	if len(t.parts) > 2 || star && t.parts[1] != "" {
		return nil, errorAt(t.pos, "a word of the message can only end in *")
	}
	tokens := Tokens(text)
	if len(tokens) == 0 {
		return nil, errorAt(t.pos, "no letter or digit to search the message for")
	}
	// A star after a separator, as in web-*, stands for nothing more.
	last, _ := utf8.DecodeLastRuneInString(text)
	return Words{Tokens: tokens, Prefix: star && isWord(last)}, nil
}

func rangeTerm(f Field, t token) (Expr, error) {
	if t.kind == tokRange {
		return brackets(f, t)
	}
	if len(t.parts) > 1 {
		return nil, errorAt(t.pos, "%s takes no *; write a range, as in %s:[%s TO *]", f.Name, f.Name, example(f))
	}
	text, op := t.text(), "="
	for _, o := range []string{">=", "<=", ">", "<"} {
		if rest, ok := strings.CutPrefix(text, o); ok && t.kind == tokWord {
			text, op = rest, o
			break
		}
	}
	lo, hi, err := span(f, text, t.pos)
	if err != nil {
		return nil, err
	}
	switch op {
	case ">":
		return newRange(f, hi+1, math.MaxInt64), nil
	case ">=":
		return newRange(f, lo, math.MaxInt64), nil
	case "<":
		return newRange(f, math.MinInt64, lo-1), nil
	case "<=":
		return newRange(f, math.MinInt64, hi), nil
	}
	return newRange(f, lo, hi), nil
}

func brackets(f Field, t token) (Expr, error) {
	text := t.text()
	words := strings.Fields(text[1 : len(text)-1])
	if len(words) != 3 || words[1] != "TO" {
		return nil, errorAt(t.pos, "write a range as %s:[%s TO *]", f.Name, example(f))
	}
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	if words[0] != "*" {
		a, b, err := span(f, words[0], t.pos)
		if err != nil {
			return nil, err
		}
		if lo = a; text[0] == '{' {
			lo = b + 1
		}
	}
	if words[2] != "*" {
		a, b, err := span(f, words[2], t.pos)
		if err != nil {
			return nil, err
		}
		if hi = b; text[len(text)-1] == '}' {
			hi = a - 1
		}
	}
	return newRange(f, lo, hi), nil
}

// newRange brings every range that nothing can match to one form.
func newRange(f Field, lo, hi int64) Expr {
	if lo > hi || f.Type == Number && (lo > maxNumber || hi < -maxNumber) {
		lo, hi = 1, 0
	}
	return Range{f, lo, hi}
}

func example(f Field) string {
	if f.Type == Time {
		return "2026-11-30T10:00:00Z"
	}
	return "1"
}

// maxNumber is beyond every counter, and keeps the arithmetic on bounds from
// overflowing.
const maxNumber = math.MaxInt64 / 2

// span is the first and last value that text stands for: a date is a day long.
func span(f Field, text string, pos int) (lo, hi int64, err error) {
	if f.Type == Number {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > maxNumber || n < -maxNumber {
			return 0, 0, errorAt(pos, "%s wants a whole number, got %q", f.Name, text)
		}
		return n, n, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil && inRange(day) {
		return day.UnixNano(), day.AddDate(0, 0, 1).UnixNano() - 1, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || !inRange(at) {
		return 0, 0, errorAt(pos, "%s wants a time such as 2026-11-30T10:00:00Z or a day such as 2026-11-30, got %q", f.Name, text)
	}
	return at.UnixNano(), at.UnixNano(), nil
}

// inRange says whether the time can be told in nanoseconds.
func inRange(t time.Time) bool { return 1678 < t.Year() && t.Year() < 2262 }
