package query

import (
	"fmt"
	"strings"
	"unicode"
)

// Error says what is wrong with a query, and where.
type Error struct {
	// Column counts characters from 1.
	Column  int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("query, column %d: %s", e.Column, e.Message)
}

func errorAt(pos int, format string, args ...any) error {
	return &Error{Column: pos + 1, Message: fmt.Sprintf(format, args...)}
}

type tokenKind int

const (
	tokEnd tokenKind = iota
	tokWord
	tokPhrase
	tokField // the word before an unescaped colon
	tokOpen
	tokClose
	tokRange // "[a TO b]", brackets included
)

type token struct {
	kind tokenKind
	pos  int
	// parts is the text with escapes resolved; between two parts stood an
	// unescaped star. Phrases, fields and ranges have one part.
	parts []string
	// plain is false when a character was escaped: such a word is no operator.
	plain bool
}

func (t token) text() string { return strings.Join(t.parts, "*") }

// is reports whether the token is the operator op.
func (t token) is(op string) bool { return t.kind == tokWord && t.plain && t.text() == op }

type lexer struct {
	in  []rune
	pos int
}

// isSpecial says which characters must be escaped to stand in a word.
func isSpecial(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune(`()[]{}":\*<>=-+!`, r)
}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.in) && unicode.IsSpace(l.in[l.pos]) {
		l.pos++
	}
	start := l.pos
	if l.pos == len(l.in) {
		return token{kind: tokEnd, pos: start}, nil
	}
	switch l.in[l.pos] {
	case '(':
		l.pos++
		return token{kind: tokOpen, pos: start}, nil
	case ')':
		l.pos++
		return token{kind: tokClose, pos: start}, nil
	case '"':
		return l.phrase()
	case '[', '{':
		return l.brackets()
	}
	return l.word()
}

func (l *lexer) phrase() (token, error) {
	start := l.pos
	var b strings.Builder
	for l.pos++; l.pos < len(l.in); l.pos++ {
		switch r := l.in[l.pos]; {
		case r == '"':
			l.pos++
			return token{kind: tokPhrase, pos: start, parts: []string{b.String()}}, nil
		case r == '\\' && l.pos+1 < len(l.in):
			l.pos++
			b.WriteRune(l.in[l.pos])
		default:
			b.WriteRune(r)
		}
	}
	return token{}, errorAt(start, `the quote is never closed; add a "`)
}

func (l *lexer) brackets() (token, error) {
	start := l.pos
	for ; l.pos < len(l.in); l.pos++ {
		if r := l.in[l.pos]; r == ']' || r == '}' {
			l.pos++
			return token{kind: tokRange, pos: start, parts: []string{string(l.in[start:l.pos])}}, nil
		}
	}
	return token{}, errorAt(start, "the range is never closed; write it as [1 TO 5]")
}

func (l *lexer) word() (token, error) {
	t := token{kind: tokWord, pos: l.pos, plain: true}
	// After a field's colon, further colons belong to the value.
	inField := l.pos > 0 && l.in[l.pos-1] == ':'
	var b strings.Builder
	for ; l.pos < len(l.in); l.pos++ {
		r := l.in[l.pos]
		if unicode.IsSpace(r) || r == '(' || r == ')' || r == '"' {
			break
		}
		switch {
		case r == '\\':
			if l.pos+1 == len(l.in) {
				return token{}, errorAt(l.pos, `a character must follow \`)
			}
			l.pos++
			t.plain = false
			b.WriteRune(l.in[l.pos])
		case r == '*':
			t.parts = append(t.parts, b.String())
			b.Reset()
		case r == ':' && !inField && len(t.parts) == 0:
			t.kind = tokField
			t.parts = []string{b.String()}
			l.pos++
			return t, nil
		default:
			b.WriteRune(r)
		}
	}
	t.parts = append(t.parts, b.String())
	return t, nil
}
