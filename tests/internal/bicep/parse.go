package bicep

import (
	"fmt"
	"strings"
)

// Parse reads a template. The path is used in errors only.
func Parse(path, source string) (*File, error) {
	tokens, err := scan(source)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	p := parser{tokens: tokens}
	f := &File{Path: path}
	for {
		p.skipLines()
		if p.peek().kind == end {
			return f, nil
		}
		d, err := p.declaration()
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		f.Declarations = append(f.Declarations, d)
	}
}

type parser struct {
	tokens []token
	at     int
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != end {
		p.at++
	}
	return t
}

func (p *parser) is(signs string) bool {
	t := p.peek()
	return t.kind == sign && t.text == signs
}

func (p *parser) skipLines() {
	for p.peek().kind == newline {
		p.at++
	}
}

func (p *parser) expected(what string) error {
	t := p.peek()
	return fmt.Errorf("line %d: expected %s, found %q", t.line, what, t.text)
}

func (p *parser) declaration() (Declaration, error) {
	var d Declaration
	for p.is("@") {
		p.next()
		decorator, err := p.value()
		if err != nil {
			return d, err
		}
		d.Decorators = append(d.Decorators, decorator.Text)
		p.skipLines()
	}
	keyword := p.next()
	d.Keyword, d.Line = keyword.text, keyword.line
	switch d.Keyword {
	case "targetScope":
	case "param", "var", "type", "output", "resource", "module":
		if p.peek().kind != word {
			return d, p.expected("a name")
		}
		d.Name = p.next().text
		d.Type = p.until("=", "existing")
	default:
		p.at--
		return d, p.expected("a declaration that this reader knows")
	}
	if t := p.peek(); t.kind == word && t.text == "existing" {
		d.Existing = true
		p.next()
	}
	if !p.is("=") {
		return d, nil
	}
	p.next()
	d.HasValue = true
	if t := p.peek(); t.kind == word && t.text == "if" {
		p.next()
		condition, err := p.grouped("(", ")")
		if err != nil {
			return d, err
		}
		d.Condition = condition.Text
	}
	var err error
	d.Value, err = p.value()
	if d.Keyword == "resource" || d.Keyword == "module" {
		d.Value = loopBody(d.Value)
	}
	return d, err
}

// until returns the text up to one of the words, or to the end of the line.
func (p *parser) until(stops ...string) string {
	var b strings.Builder
	for {
		t := p.peek()
		if t.kind == newline || t.kind == end {
			return b.String()
		}
		for _, stop := range stops {
			if t.text == stop && (t.kind == sign || t.kind == word) {
				return b.String()
			}
		}
		b.WriteString(p.next().text)
	}
}

// loopBody returns the body of "[for x in y: body]", and any other value unchanged.
func loopBody(v Value) Value {
	if v.Kind != Array || len(v.Items) != 1 || !strings.HasPrefix(v.Items[0].Text, "for ") || len(v.Items[0].Parts) == 0 {
		return v
	}
	return v.Items[0].Parts[len(v.Items[0].Parts)-1]
}

// value reads up to the end of the line, a comma, or a closing bracket.
func (p *parser) value() (Value, error) {
	var parts []Value
	var words []string
	line := p.peek().line
	for {
		t := p.peek()
		switch {
		case t.kind == end || t.kind == newline && !p.goesOn(),
			t.kind == sign && strings.Contains(",)]}", t.text):
			return whole(parts, words, line), nil
		case t.kind == newline:
			p.next()
			continue
		case t.kind == text:
			p.next()
			parts = append(parts, Value{Kind: String, Text: t.text, Line: t.line})
			words = append(words, "'"+t.text+"'")
			continue
		case t.kind == interpolated:
			p.next()
			words = append(words, "'"+t.text+"'")
			continue
		case t.kind == sign && strings.Contains("{[(", t.text):
			within, err := p.bracketed()
			if err != nil {
				return Value{}, err
			}
			if within.Kind == Expression {
				parts = append(parts, within.Parts...)
			} else {
				parts = append(parts, within)
			}
			words = append(words, within.Text)
			continue
		}
		p.next()
		words = append(words, t.text)
	}
}

// goesOn reports whether a line is continued by the next one: "? :" may be spread over several
// lines.
func (p *parser) goesOn() bool {
	for _, t := range p.tokens[p.at:] {
		if t.kind != newline {
			return t.kind == sign && (t.text == "?" || t.text == ":")
		}
	}
	return false
}

// whole returns the only part of a value, or an expression if it has more than one.
func whole(parts []Value, words []string, line int) Value {
	if len(parts) == 1 && len(words) == 1 {
		return parts[0]
	}
	return Value{Kind: Expression, Text: strings.Join(words, " "), Parts: parts, Line: line}
}

func (p *parser) bracketed() (Value, error) {
	switch p.peek().text {
	case "{":
		return p.object()
	case "[":
		return p.array()
	}
	return p.grouped("(", ")")
}

// grouped reads what stands between parentheses, which may span several lines.
func (p *parser) grouped(opening, closing string) (Value, error) {
	if !p.is(opening) {
		return Value{}, p.expected(opening)
	}
	all := Value{Kind: Expression, Line: p.next().line}
	words := []string{opening}
	for {
		for p.peek().kind == newline || p.is(",") {
			if p.next().kind == sign {
				words = append(words, ",")
			}
		}
		if p.is(closing) {
			p.next()
			all.Text = strings.Join(append(words, closing), " ")
			return all, nil
		}
		before := p.at
		v, err := p.value()
		if err != nil {
			return all, err
		}
		if p.at == before {
			return all, p.expected(closing)
		}
		words = append(words, v.Text)
		if v.Kind == Expression {
			all.Parts = append(all.Parts, v.Parts...)
		} else {
			all.Parts = append(all.Parts, v)
		}
	}
}

func (p *parser) array() (Value, error) {
	a := Value{Kind: Array, Line: p.next().line}
	words := []string{"["}
	for {
		for p.peek().kind == newline || p.is(",") {
			p.next()
		}
		if p.is("]") {
			p.next()
			a.Text = strings.Join(append(words, "]"), " ")
			return a, nil
		}
		before := p.at
		item, err := p.value()
		if err != nil {
			return a, err
		}
		if p.at == before {
			return a, p.expected("]")
		}
		a.Items = append(a.Items, item)
		words = append(words, item.Text)
	}
}

func (p *parser) object() (Value, error) {
	o := Value{Kind: Object, Line: p.next().line}
	words := []string{"{"}
	for {
		for p.peek().kind == newline || p.is(",") {
			p.next()
		}
		if p.is("}") {
			p.next()
			o.Text = strings.Join(append(words, "}"), " ")
			return o, nil
		}
		name := p.peek()
		if name.text == "resource" && p.tokens[p.at+1].kind == word {
			nested, err := p.declaration()
			if err != nil {
				return o, err
			}
			o.Nested = append(o.Nested, nested)
			continue
		}
		if name.kind != word && name.kind != text && name.kind != interpolated {
			return o, p.expected("a field's name or }")
		}
		p.next()
		if !p.is(":") {
			return o, p.expected(":")
		}
		p.next()
		v, err := p.value()
		if err != nil {
			return o, err
		}
		o.Fields = append(o.Fields, Field{name.text, v})
		words = append(words, name.text, ":", v.Text)
	}
}
