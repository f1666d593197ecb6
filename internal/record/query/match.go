package query

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// Match reports whether the record satisfies the expression; nil matches all.
func Match(e Expr, r *record.Record) bool {
	switch e := e.(type) {
	case nil, All:
		return true
	case And:
		for _, x := range e.List {
			if !Match(x, r) {
				return false
			}
		}
		return true
	case Or:
		for _, x := range e.List {
			if Match(x, r) {
				return true
			}
		}
		return false
	case Not:
		return !Match(e.X, r)
	case Keyword:
		return matchParts(e.Parts, e.Field.text(r))
	case Exists:
		return e.Field.Type == Number || e.Field.Type == Time || e.Field.text(r) != ""
	case Words:
		return matchWords(e, Tokens(r.Message))
	case Range:
		v := e.Field.number(r)
		return e.Lo <= v && v <= e.Hi
	}
	return false
}

func matchWords(e Words, tokens []string) bool {
	n := len(e.Tokens)
	for i := 0; i+n <= len(tokens); i++ {
		got := tokens[i : i+n]
		if !e.Prefix && slices.Equal(got, e.Tokens) {
			return true
		}
		if e.Prefix && slices.Equal(got[:n-1], e.Tokens[:n-1]) && strings.HasPrefix(got[n-1], e.Tokens[n-1]) {
			return true
		}
	}
	return false
}

func matchParts(parts []string, s string) bool {
	s = foldASCII(s)
	first := foldASCII(parts[0])
	if len(parts) == 1 {
		return s == first
	}
	last := foldASCII(parts[len(parts)-1])
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		p = foldASCII(p)
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return true
}

// foldASCII lowers ASCII letters only, as SQLite's NOCASE and Elasticsearch's
// case_insensitive do.
func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// maxToken bounds a token in bytes; what is longer is cut, in the records and
// in the queries alike.
const maxToken = 256

// Tokens splits text into its words: runs of letters, marks and digits, in
// lower case. Stores index exactly these.
func Tokens(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !isWord(r) })
	for i, w := range words {
		words[i] = cut(strings.Map(unicode.ToLower, w))
	}
	return words
}

func isWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

func cut(s string) string {
	if len(s) <= maxToken {
		return s
	}
	n := maxToken
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Text is the tokens of text separated by spaces: what a full-text index is fed.
func Text(text string) string { return strings.Join(Tokens(text), " ") }
