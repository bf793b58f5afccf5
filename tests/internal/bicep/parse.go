package bicep

import "strings"

// Parse reads a template. The path is used in errors only.
func Parse(path, source string) (f *File, err error) {
	defer caught(&err, "parse "+path)
	p := parser{tokens: scan(source)}
	f = &File{Path: path}
	for p.skipLines(); p.peek().kind != end; p.skipLines() {
		f.Declarations = append(f.Declarations, p.declaration())
	}
	return f, nil
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

// expected fails unless the condition holds; what names what the file should have had here.
func (p *parser) expected(so bool, what string) {
	if t := p.peek(); !so {
		fail("line %d: expected %s, found %q", t.line, what, t.text)
	}
}

func (p *parser) declaration() (d Declaration) {
	for p.is("@") {
		p.next()
		d.Decorators = append(d.Decorators, p.value().Text)
		p.skipLines()
	}
	keyword := p.next()
	d.Keyword, d.Line = keyword.text, keyword.line
	switch d.Keyword {
	case "targetScope":
	case "param", "var", "type", "output", "resource", "module":
		p.expected(p.peek().kind == word, "a name")
		d.Name = p.next().text
		d.Type = p.until("=", "existing")
	default:
		p.at--
		p.expected(false, "a declaration that this reader knows")
	}
	if t := p.peek(); t.kind == word && t.text == "existing" {
		d.Existing = true
		p.next()
	}
	if !p.is("=") {
		return d
	}
	p.next()
	d.HasValue = true
	if t := p.peek(); t.kind == word && t.text == "if" {
		p.next()
		p.expected(p.is("("), "(")
		d.Condition = p.bracketed().Text
	}
	d.Value = p.value()
	if d.Keyword == "resource" || d.Keyword == "module" {
		d.Value = loopBody(d.Value)
	}
	return d
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
func (p *parser) value() Value {
	var parts []Value
	var words []string
	line := p.peek().line
	for {
		t := p.peek()
		switch {
		case t.kind == end || t.kind == newline && !p.goesOn(),
			t.kind == sign && strings.Contains(",)]}", t.text):
			return whole(parts, words, line)
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
			within := p.bracketed()
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

// brackets are the values between brackets, by the opening one.
var brackets = map[string]struct {
	kind    Kind
	closing string
}{"{": {Object, "}"}, "[": {Array, "]"}, "(": {Expression, ")"}}

// bracketed reads what is between brackets, which may span several lines.
func (p *parser) bracketed() Value {
	opening := p.next()
	b := brackets[opening.text]
	all, words := Value{Kind: b.kind, Line: opening.line}, []string{opening.text}
	for {
		for p.peek().kind == newline || p.is(",") {
			if p.next().kind == sign && b.kind == Expression {
				words = append(words, ",")
			}
		}
		if p.is(b.closing) {
			p.next()
			all.Text = strings.Join(append(words, b.closing), " ")
			return all
		}
		if b.kind == Object {
			words = p.field(&all, words)
		} else {
			words = p.item(&all, words, b.closing)
		}
	}
}

// item reads a value of an array or between parentheses, and returns the words with its own.
func (p *parser) item(of *Value, words []string, closing string) []string {
	before := p.at
	v := p.value()
	p.expected(p.at > before, closing)
	switch {
	case of.Kind == Array:
		of.Items = append(of.Items, v)
	case v.Kind == Expression:
		of.Parts = append(of.Parts, v.Parts...)
	default:
		of.Parts = append(of.Parts, v)
	}
	return append(words, v.Text)
}

// field reads a field of an object, and returns the words with its own.
func (p *parser) field(of *Value, words []string) []string {
	name := p.peek()
	if name.text == "resource" && p.tokens[p.at+1].kind == word {
		of.Nested = append(of.Nested, p.declaration())
		return words
	}
	p.expected(name.kind == word || name.kind == text || name.kind == interpolated, "a field's name or }")
	p.next()
	p.expected(p.is(":"), ":")
	p.next()
	v := p.value()
	of.Fields = append(of.Fields, Field{name.text, v})
	return append(words, name.text, ":", v.Text)
}
