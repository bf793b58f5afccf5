package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxLevels is how deep JSON may be nested. MongoDB stores documents of 100 levels.
const maxLevels = 120

// node is a value of JSON, with the names of an object in their order.
type node struct {
	kind  byte   // '{', '[', '"', '0' (a number), 't', 'f' or 'n'
	text  string // of a string its value, of a number its literal
	names []string
	items []node
	raw   []byte
}

// parse reads a text that is one value of JSON. Names of an object must differ, and text must be
// UTF-8: what encoding/json accepts beyond that would be changed silently.
func parse(data []byte) (node, error) {
	if !utf8.Valid(data) {
		return node{}, errors.New("is not UTF-8")
	}
	if !json.Valid(data) {
		return node{}, errors.New("is not JSON")
	}
	p := parser{data: data}
	return p.value(0)
}

// parser reads JSON that is known to be valid.
type parser struct {
	data []byte
	pos  int
}

func (p *parser) space() {
	for p.pos < len(p.data) && strings.IndexByte(" \t\r\n", p.data[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) value(level int) (node, error) {
	if level > maxLevels {
		return node{}, fmt.Errorf("is nested deeper than %d levels", maxLevels)
	}
	p.space()
	begin := p.pos
	n := node{kind: p.data[begin]}
	var err error
	switch n.kind {
	case '{', '[':
		err = p.members(&n, level)
	case '"':
		n.text, err = p.text()
	case 't', 'n':
		p.pos += len("true")
	case 'f':
		p.pos += len("false")
	default:
		for p.pos < len(p.data) && strings.IndexByte("+-.0123456789eE", p.data[p.pos]) >= 0 {
			p.pos++
		}
		n.kind, n.text = '0', string(p.data[begin:p.pos])
	}
	n.raw = p.data[begin:p.pos]
	return n, err
}

// members reads an object or an array.
func (p *parser) members(n *node, level int) error {
	p.pos++
	for {
		p.space()
		switch p.data[p.pos] {
		case '}', ']':
			p.pos++
			return nil
		case ',':
			p.pos++
			p.space()
		}
		if n.kind == '{' {
			name, err := p.text()
			if err != nil {
				return err
			}
			if slices.Contains(n.names, name) {
				return fmt.Errorf("has the name %q twice in one object", name)
			}
			n.names = append(n.names, name)
			p.space()
			p.pos++ // the colon
		}
		item, err := p.value(level + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
}

// text reads a string.
func (p *parser) text() (string, error) {
	begin, escaped := p.pos, false
	for p.pos++; p.data[p.pos] != '"'; p.pos++ {
		if p.data[p.pos] == '\\' {
			escaped = true
			p.pos++
		}
	}
	p.pos++
	raw := p.data[begin:p.pos]
	if !escaped {
		return string(raw[1 : len(raw)-1]), nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", err
	}
	if half := strings.Count(text, "\ufffd") - strings.Count(string(raw), "\ufffd") - strings.Count(strings.ToLower(string(raw)), `\ufffd`); half > 0 {
		return "", errors.New("has an escape that is half of a surrogate pair")
	}
	return text, nil
}

// object is an object of JSON whose members are taken one after the other. The first error stays.
type object struct {
	what string // for errors
	node node
	used int
	err  error
}

// object returns the members of n, which must be an object.
func (n node) object(what string) *object {
	o := &object{what: what, node: n}
	if n.kind != '{' {
		o.fail("is not an object")
	}
	return o
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%s %s", o.what, fmt.Sprintf(format, args...))
	}
}

// take returns a member. ok is false if it is absent.
func (o *object) take(name string) (n node, ok bool) {
	i := slices.Index(o.node.names, name)
	if i < 0 {
		return node{}, false
	}
	o.used++
	return o.node.items[i], true
}

// need returns a member that must be there.
func (o *object) need(name string) node {
	n, ok := o.take(name)
	if !ok {
		o.fail("has no %s", name)
	}
	return n
}

// text returns a member that must be a string.
func (o *object) text(name string) string {
	n := o.need(name)
	if n.kind != '"' {
		o.fail("has a %s that is not a string", name)
	}
	return n.text
}

// flag returns a member that is true or false; absent is false.
func (o *object) flag(name string) bool {
	n, ok := o.take(name)
	if ok && n.kind != 't' && n.kind != 'f' {
		o.fail("has a %s that is neither true nor false", name)
	}
	return n.kind == 't'
}

// list returns a member that must be an array.
func (o *object) list(name string) []node {
	n := o.need(name)
	if n.kind != '[' {
		o.fail("has a %s that is not an array", name)
	}
	return n.items
}

// end returns the first error. A member that was not taken is one.
func (o *object) end() error {
	if o.err == nil && o.used < len(o.node.names) {
		o.fail("has a member that the protocol does not have here; its members are %s", strings.Join(o.node.names, ", "))
	}
	return o.err
}
