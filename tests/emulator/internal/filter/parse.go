package filter

import (
	"fmt"
	"strings"
)

// SQL is a filter by expression.
type SQL struct {
	text string
	root node
}

// String returns the expression as it was written.
func (s *SQL) String() string { return s.text }

// ParseSQL compiles an expression. Parameters are named with their "@".
func ParseSQL(expression string, params map[string]any) (*SQL, error) {
	p, err := newParser(expression, params)
	if err != nil {
		return nil, err
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.err != nil || p.tok.kind != end {
		return nil, p.unexpected("the end")
	}
	return &SQL{text: expression, root: root}, nil
}

// Match implements Filter.
func (s *SQL) Match(m Message) (bool, error) {
	v, err := s.root.eval(m)
	if err != nil {
		return false, fmt.Errorf("evaluate sql filter: %w", err)
	}
	selected, _ := v.(bool)
	return selected, nil
}

type parser struct {
	lexer
	params map[string]any
	tok    token
	depth  int
	err    error // of the lexer; the token is end then
}

func newParser(src string, params map[string]any) (*parser, error) {
	if len(src) > MaxLength {
		return nil, fmt.Errorf("sql: the expression has %d bytes, more than %d", len(src), MaxLength)
	}
	p := &parser{lexer: lexer{src: src}, params: params}
	p.advance()
	return p, p.err
}

func (p *parser) advance() {
	if p.err != nil {
		return
	}
	if p.tok, p.err = p.next(); p.err != nil {
		p.tok = token{kind: end, at: p.pos}
	}
}

func (p *parser) unexpected(want string) error {
	switch {
	case p.err != nil:
		return p.err
	case p.tok.kind == end:
		return syntax(p.tok.at, "want %s, got the end", want)
	}
	return syntax(p.tok.at, "want %s, got %q", want, p.tok.text)
}

func (p *parser) isKeyword(k string) bool {
	return p.tok.kind == word && strings.EqualFold(p.tok.text, k)
}

func (p *parser) keyword(k string) bool {
	if !p.isKeyword(k) {
		return false
	}
	p.advance()
	return true
}

func (p *parser) symbol(s string) bool {
	if p.tok.kind != punct || p.tok.text != s {
		return false
	}
	p.advance()
	return true
}

func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return syntax(p.tok.at, "nested more than %d deep", maxDepth)
	}
	return nil
}

func (p *parser) or() (node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	n, err := p.and()
	for err == nil && p.keyword("OR") {
		var right node
		right, err = p.and()
		n = logic{or: true, left: n, right: right}
	}
	return n, err
}

func (p *parser) and() (node, error) {
	n, err := p.not()
	for err == nil && p.keyword("AND") {
		var right node
		right, err = p.not()
		n = logic{left: n, right: right}
	}
	return n, err
}

func (p *parser) not() (node, error) {
	if !p.keyword("NOT") {
		return p.predicate()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	n, err := p.not()
	return negation{n}, err
}

func (p *parser) predicate() (node, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	for _, op := range []string{"=", "<>", "!=", "<=", ">=", "<", ">"} {
		if p.symbol(op) {
			right, err := p.sum()
			return comparison{op: op, left: left, right: right}, err
		}
	}
	if p.keyword("IS") {
		not := p.keyword("NOT")
		if !p.keyword("NULL") {
			return nil, p.unexpected("NULL")
		}
		return wrapNot(not, isNull{left}), nil
	}
	not := p.keyword("NOT")
	switch {
	case p.keyword("LIKE"):
		n, err := p.like(left)
		return wrapNot(not, n), err
	case p.keyword("IN"):
		n, err := p.in(left)
		return wrapNot(not, n), err
	case not:
		return nil, p.unexpected("LIKE or IN")
	}
	return left, nil
}

func wrapNot(not bool, n node) node {
	if not {
		return negation{n}
	}
	return n
}

func (p *parser) like(left node) (node, error) {
	pattern, err := p.sum()
	if err != nil {
		return nil, err
	}
	n := like{left: left, pattern: pattern}
	if p.keyword("ESCAPE") {
		n.escape, err = p.sum()
	}
	return n, err
}

func (p *parser) in(left node) (node, error) {
	if !p.symbol("(") {
		return nil, p.unexpected("(")
	}
	n := oneOf{left: left}
	for {
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		n.list = append(n.list, x)
		if p.symbol(")") {
			return n, nil
		}
		if !p.symbol(",") {
			return nil, p.unexpected(", or )")
		}
	}
}

func (p *parser) sum() (node, error) {
	return p.chain("+-", func() (node, error) { return p.chain("*/%", p.unary) })
}

func (p *parser) chain(ops string, operand func() (node, error)) (node, error) {
	n, err := operand()
	for err == nil && p.tok.kind == punct && len(p.tok.text) == 1 && strings.Contains(ops, p.tok.text) {
		op := p.tok.text[0]
		p.advance()
		var right node
		right, err = operand()
		n = arithmetic{op: op, left: n, right: right}
	}
	return n, err
}

func (p *parser) unary() (node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if p.symbol("-") {
		n, err := p.unary()
		return arithmetic{op: '-', left: constant{int64(0)}, right: n}, err
	}
	if p.symbol("+") {
		return p.unary()
	}
	return p.primary()
}

func (p *parser) primary() (node, error) {
	t := p.tok
	switch t.kind {
	case text:
		p.advance()
		return constant{t.text}, nil
	case number:
		p.advance()
		return constant{t.value}, nil
	case parameter:
		p.advance()
		v, known := p.params[t.text]
		if !known {
			return nil, syntax(t.at, "parameter %s has no value", t.text)
		}
		return constant{v}, nil
	case word, quoted:
		return p.named()
	case punct:
		if p.symbol("(") {
			n, err := p.or()
			if err == nil && !p.symbol(")") {
				err = p.unexpected(")")
			}
			return n, err
		}
	case end:
	}
	return nil, p.unexpected("a value")
}

// reserved words cannot be properties unless they are quoted.
var reserved = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "LIKE": true, "ESCAPE": true, "IN": true, "IS": true, "SET": true, "REMOVE": true,
}

func (p *parser) named() (node, error) {
	if p.tok.kind == word {
		switch strings.ToUpper(p.tok.text) {
		case "TRUE":
			p.advance()
			return constant{true}, nil
		case "FALSE":
			p.advance()
			return constant{false}, nil
		case "NULL":
			p.advance()
			return constant{nil}, nil
		case "EXISTS":
			p.advance()
			if !p.symbol("(") {
				return nil, p.unexpected("(")
			}
			prop, err := p.property()
			if err == nil && !p.symbol(")") {
				err = p.unexpected(")")
			}
			return exists{prop}, err
		}
	}
	prop, err := p.property()
	if err == nil && p.tok.kind == punct && p.tok.text == "(" {
		return nil, syntax(p.tok.at, "function %s is not supported by this emulator", prop.name)
	}
	return prop, err
}

// property reads a name with an optional scope.
func (p *parser) property() (property, error) {
	t := p.tok
	if t.kind != quoted && (t.kind != word || reserved[strings.ToUpper(t.text)]) {
		return property{}, p.unexpected("a property")
	}
	p.advance()
	if !p.symbol(".") {
		return property{name: t.text}, nil
	}
	name := p.tok
	if name.kind != word && name.kind != quoted {
		return property{}, p.unexpected("a property")
	}
	p.advance()
	switch strings.ToLower(t.text) {
	case "user":
		return property{name: name.text}, nil
	case "sys":
		key := strings.ToLower(name.text)
		if !systemNames[key] {
			return property{}, syntax(name.at, "system property %q is not supported by this emulator", name.text)
		}
		return property{name: key, system: true}, nil
	}
	return property{}, syntax(t.at, "scope %q is neither user nor sys", t.text)
}
