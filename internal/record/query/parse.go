package query

import "slices"

// Bounds of one query.
const (
	maxLength = 4096
	maxDepth  = 32
	maxTerms  = 128
)

// Parse turns text into an expression; empty text is All. The error is an
// *Error, fit to be shown as it is.
func Parse(text string) (Expr, error) {
	if len(text) > maxLength {
		return nil, errorAt(maxLength, "longer than %d bytes; ask for less at once", maxLength)
	}
	p := &parser{lex: lexer{in: []rune(text)}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == tokEnd {
		return All{}, nil
	}
	e, err := p.or(0)
	if err != nil {
		return nil, err
	}
	switch p.tok.kind {
	case tokEnd:
		return e, nil
	case tokClose:
		return nil, errorAt(p.tok.pos, "no ( opens this ); remove it or add one")
	default:
		return nil, errorAt(p.tok.pos, "unexpected %q", p.tok.text())
	}
}

type parser struct {
	lex   lexer
	tok   token
	terms int
	// field is the one that a group such as reason:(a OR b) stands for.
	field *Field
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lex.next()
	return err
}

func (p *parser) or(depth int) (Expr, error) {
	if depth > maxDepth {
		return nil, errorAt(p.tok.pos, "nested deeper than %d; ask for less at once", maxDepth)
	}
	var list []Expr
	for {
		e, err := p.and(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if !p.tok.is("OR") {
			break
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return Or{list}, nil
}

func (p *parser) and(depth int) (Expr, error) {
	var list []Expr
	for {
		e, err := p.not(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if p.tok.is("AND") {
			if err := p.advance(); err != nil {
				return nil, err
			}
			continue
		}
		if p.tok.kind == tokEnd || p.tok.kind == tokClose || p.tok.is("OR") {
			break
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return And{list}, nil
}

func (p *parser) not(depth int) (Expr, error) {
	if !p.tok.is("NOT") {
		return p.primary(depth)
	}
	if depth > maxDepth {
		return nil, errorAt(p.tok.pos, "nested deeper than %d; ask for less at once", maxDepth)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	e, err := p.not(depth + 1)
	if err != nil {
		return nil, err
	}
	return Not{e}, nil
}

func (p *parser) primary(depth int) (Expr, error) {
	switch t := p.tok; t.kind {
	case tokOpen:
		return p.group(depth)
	case tokField:
		return p.fielded(depth)
	case tokWord, tokPhrase, tokRange:
		for _, op := range []string{"AND", "OR"} {
			if t.is(op) {
				return nil, errorAt(t.pos, "a term must stand before %s; to search the word itself write \"%s\"", op, op)
			}
		}
		return p.leaf()
	case tokClose:
		return nil, errorAt(t.pos, "a term must stand before )")
	case tokEnd:
	}
	return nil, errorAt(p.tok.pos, "a term is missing at the end")
}

func (p *parser) group(depth int) (Expr, error) {
	open := p.tok.pos
	if err := p.advance(); err != nil {
		return nil, err
	}
	e, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokClose {
		return nil, errorAt(open, "the ( is never closed; add a )")
	}
	return e, p.advance()
}

func (p *parser) fielded(depth int) (Expr, error) {
	name, pos := p.tok.text(), p.tok.pos
	f, ok := lookup(name)
	if !ok {
		return nil, errorAt(pos, "no field %q; to search the message put quotes around it; fields are %s", name, fieldNames())
	}
	if p.field != nil {
		return nil, errorAt(pos, "%s: stands inside the group of %s:", f.Name, p.field.Name)
	}
	end := p.lex.pos
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.pos != end || p.tok.kind == tokEnd {
		return nil, errorAt(end-1, "a value must follow %s: at once, as in %s:x or %s:\"x y\"", f.Name, f.Name, f.Name)
	}
	p.field = &f
	defer func() { p.field = nil }()
	if p.tok.kind == tokOpen {
		return p.group(depth)
	}
	if !slices.Contains([]tokenKind{tokWord, tokPhrase, tokRange}, p.tok.kind) {
		return nil, errorAt(p.tok.pos, "a value must follow %s:", f.Name)
	}
	return p.leaf()
}

// leaf turns the current token into a term of the current field.
func (p *parser) leaf() (Expr, error) {
	t := p.tok
	if p.terms++; p.terms > maxTerms {
		return nil, errorAt(t.pos, "more than %d terms; ask for less at once", maxTerms)
	}
	field := Field{Name: "message", Type: TypeText}
	if p.field != nil {
		field = *p.field
	} else if t.kind == tokRange {
		return nil, errorAt(t.pos, "a range needs a field, as in count:[1 TO 5]; to search the message put quotes around it")
	}
	e, err := term(field, t, p.field != nil)
	if err != nil {
		return nil, err
	}
	return e, p.advance()
}
