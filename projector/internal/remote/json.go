package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxLevels is how deep JSON may be nested. MongoDB stores documents of 100 levels.
const maxLevels = 120

// node is a value of JSON.
type node struct {
	kind  byte   // '{', '[', '"', '0' (a number), 't', 'f' or 'n'
	name  string // of a member of an object
	text  string // of a string its value, of a number its literal
	items []node // of an object its members, in their order
	raw   string
}

var errSyntax = errors.New("is not JSON")

// parse reads a text that is one value of JSON. Names of an object must differ, and text must be
// UTF-8: what encoding/json accepts beyond that would be changed silently.
func parse(data []byte) (node, error) { return new(parser).parse(data) }

// parser reads JSON. Its nodes are valid until it is freed.
type parser struct {
	twice bool   // an object may have a name twice, as a document may
	data  string // the texts of nodes are parts of it
	pos   int
	open  []node // the members so far of the objects and arrays that p is in
	slab  []node // room for members
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// free frees the memory of the nodes.
func (p *parser) free() {
	const most = 1 << 13 // nodes that are kept for the next text
	if cap(p.slab) > most || cap(p.open) > most {
		p.slab, p.open = nil, nil
	}
	clear(p.slab)
	clear(p.open[:cap(p.open)])
	*p = parser{open: p.open[:0], slab: p.slab[:0]}
	parsers.Put(p)
}

func (p *parser) parse(data []byte) (node, error) {
	if !utf8.Valid(data) {
		return node{}, errors.New("is not UTF-8")
	}
	p.data = string(data)
	n, err := p.value(0)
	if p.space(); err == nil && p.pos < len(p.data) {
		err = errSyntax
	}
	return n, err
}

// at reports whether c is the next byte, and passes it then.
func (p *parser) at(c byte) bool {
	if p.pos < len(p.data) && p.data[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *parser) space() {
	for p.pos < len(p.data) && isSpace(p.data[p.pos]) {
		p.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (p *parser) value(level int) (node, error) {
	if level > maxLevels {
		return node{}, fmt.Errorf("is nested deeper than %d levels", maxLevels)
	}
	p.space()
	if p.pos == len(p.data) {
		return node{}, errSyntax
	}
	begin := p.pos
	n := node{kind: p.data[begin]}
	var err error
	switch n.kind {
	case '{':
		n.items, err = p.members('}', level)
	case '[':
		n.items, err = p.members(']', level)
	case '"':
		n.text, err = p.text()
	case 't':
		err = p.literal("true")
	case 'f':
		err = p.literal("false")
	case 'n':
		err = p.literal("null")
	default:
		n.kind, err = '0', p.number()
		n.text = p.data[begin:p.pos]
	}
	n.raw = p.data[begin:p.pos]
	return n, err
}

func (p *parser) literal(text string) error {
	if !strings.HasPrefix(p.data[p.pos:], text) {
		return errSyntax
	}
	p.pos += len(text)
	return nil
}

func (p *parser) number() error {
	p.at('-')
	valid := p.at('0') || p.digits()
	if valid && p.at('.') {
		valid = p.digits()
	}
	if valid && (p.at('e') || p.at('E')) {
		_ = p.at('+') || p.at('-')
		valid = p.digits()
	}
	if !valid {
		return errSyntax
	}
	return nil
}

// digits passes digits and reports whether there is one.
func (p *parser) digits() bool {
	begin := p.pos
	for p.pos < len(p.data) && '0' <= p.data[p.pos] && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > begin
}

// members reads the members of an object or an array, whose last byte is end.
func (p *parser) members(end byte, level int) ([]node, error) {
	begin := len(p.open)
	p.pos++
	if p.space(); p.at(end) {
		return nil, nil
	}
	for {
		var name string
		if end == '}' {
			var err error
			if name, err = p.name(); err != nil {
				return nil, err
			}
		}
		item, err := p.value(level + 1)
		if err != nil {
			return nil, err
		}
		item.name = name
		p.open = append(p.open, item)
		switch p.space(); {
		case p.at(end):
			return p.close(begin, end == '}')
		case !p.at(','):
			return nil, errSyntax
		}
	}
}

// name reads the name of a member, and the colon behind it.
func (p *parser) name() (string, error) {
	p.space()
	name, err := p.text()
	if p.space(); err == nil && !p.at(':') {
		err = errSyntax
	}
	return name, err
}

// close returns the members that are open since begin.
func (p *parser) close(begin int, named bool) ([]node, error) {
	n := len(p.open) - begin
	if cap(p.slab)-len(p.slab) < n {
		p.slab = make([]node, 0, max(n, 128, 2*cap(p.slab)))
	}
	p.slab = append(p.slab, p.open[begin:]...)
	p.open = p.open[:begin]
	items := p.slab[len(p.slab)-n : len(p.slab) : len(p.slab)]
	if named && !p.twice {
		if name, twice := hasTwice(items); twice {
			return nil, fmt.Errorf("has the name %q twice in one object", name)
		}
	}
	return items, nil
}

// hasTwice returns a name that two members have.
func hasTwice(items []node) (string, bool) {
	const few = 16
	if len(items) > few {
		seen := make(map[string]bool, len(items))
		for _, item := range items {
			if seen[item.name] {
				return item.name, true
			}
			seen[item.name] = true
		}
		return "", false
	}
	for i, item := range items {
		for _, before := range items[:i] {
			if before.name == item.name {
				return item.name, true
			}
		}
	}
	return "", false
}

// text reads a string.
func (p *parser) text() (string, error) {
	begin, escaped := p.pos, false
	if !p.at('"') {
		return "", errSyntax
	}
	for !p.at('"') {
		if p.at('\\') {
			escaped = true
		}
		if p.pos == len(p.data) || p.data[p.pos] < ' ' {
			return "", errSyntax
		}
		p.pos++
	}
	raw := p.data[begin:p.pos]
	if !escaped {
		return raw[1 : len(raw)-1], nil
	}
	var text string
	if err := json.Unmarshal([]byte(raw), &text); err != nil {
		return "", errSyntax
	}
	if half := strings.Count(text, "\ufffd") - strings.Count(raw, "\ufffd") - strings.Count(strings.ToLower(raw), `\ufffd`); half > 0 {
		return "", errors.New("has an escape that is half of a surrogate pair")
	}
	return text, nil
}

// object is an object of JSON whose members are taken one after the other. The first error stays.
type object struct {
	what string // for errors
	kind string // what more errors name, if it is known
	name string
	node node
	used int
	err  error
}

// object returns the members of n, which must be an object.
func (n node) object(what string) object {
	o := object{what: what, node: n}
	if n.kind != '{' {
		o.fail("is not an object")
	}
	return o
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%s %s", o.about(), fmt.Sprintf(format, args...))
	}
}

// about names the object in errors.
func (o *object) about() string {
	if o.kind == "" && o.name == "" {
		return o.what
	}
	return fmt.Sprintf("%s (%s %s)", o.what, shorten(o.kind), shorten(o.name))
}

// take returns a member. ok is false if it is absent.
func (o *object) take(name string) (n node, ok bool) {
	for _, item := range o.node.items {
		if item.name == name {
			o.used++
			return item, true
		}
	}
	return node{}, false
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

// optional returns a member that must be a string if it is there.
func (o *object) optional(name string) string {
	n, ok := o.take(name)
	if ok && n.kind != '"' {
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
	if o.err == nil && o.used < len(o.node.items) {
		names := make([]string, len(o.node.items))
		for i, item := range o.node.items {
			names[i] = item.name
		}
		o.fail("has a member that the protocol does not have here; its members are %s", strings.Join(names, ", "))
	}
	return o.err
}
