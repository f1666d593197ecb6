package query

import (
	"fmt"
	"strings"
)

// Hints says what in a valid query may mean something else than it says, a
// line for each.
func Hints(text string) (hints []string) {
	lex := lexer{in: []rune(text)}
	previous := tokEnd
	for {
		t, err := lex.next()
		if err != nil || t.kind == tokEnd {
			return hints
		}
		if t.kind == tokWord && t.plain && previous != tokField {
			word := t.text()
			upper := strings.ToUpper(word)
			name, value, assigned := strings.Cut(word, "=")
			field, known := lookup(name)
			switch {
			case (upper == "OR" || upper == "AND" || upper == "NOT") && word != upper:
				hints = append(hints, fmt.Sprintf("%q is searched as a word; the operator is %s", word, upper))
			case assigned && known:
				hints = append(hints, fmt.Sprintf("%q is searched as words of the message; the field is asked for with %s:%s", word, field.Name, value))
			}
		}
		previous = t.kind
	}
}
