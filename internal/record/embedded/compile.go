package embedded

import (
	"strings"

	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
)

// compile translates an expression to an SQL condition. Values travel as
// arguments only; field names come from the query package's own list.
func compile(e query.Expr) (string, []any) {
	switch e := e.(type) {
	case query.And:
		return compileList(e.List, " AND ")
	case query.Or:
		return compileList(e.List, " OR ")
	case query.Not:
		cond, args := compile(e.X)
		return "NOT " + cond, args
	case query.Keyword:
		if len(e.Parts) == 1 {
			return "(" + e.Field.Name + " = ?)", []any{e.Parts[0]}
		}
		return "(" + e.Field.Name + ` LIKE ? ESCAPE '\')`, []any{pattern(e.Parts)}
	case query.Exists:
		if e.Field.Type == query.Number || e.Field.Type == query.Time {
			return "(1)", nil
		}
		return "(" + e.Field.Name + " <> '')", nil
	case query.Words:
		phrase := `"` + strings.Join(e.Tokens, " ") + `"`
		if e.Prefix {
			phrase += "*"
		}
		return "(seq IN (SELECT rowid FROM words WHERE words MATCH ?))", []any{phrase}
	case query.Range:
		return "(" + e.Field.Name + " BETWEEN ? AND ?)", []any{e.Lo, e.Hi}
	}
	return "(1)", nil
}

func compileList(list []query.Expr, op string) (string, []any) {
	conds := make([]string, len(list))
	var args []any
	for i, e := range list {
		cond, a := compile(e)
		conds[i] = cond
		args = append(args, a...)
	}
	return "(" + strings.Join(conds, op) + ")", args
}

func pattern(parts []string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(p)
	}
	return strings.Join(escaped, "%")
}
