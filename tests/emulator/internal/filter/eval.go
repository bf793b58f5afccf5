package filter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// node is a part of an expression. nil stands for unknown.
type node interface {
	eval(m Message) (any, error)
}

type constant struct{ value any }

func (c constant) eval(Message) (any, error) { return c.value, nil }

type property struct {
	name   string
	system bool
}

func (p property) find(m Message) (any, bool) {
	if p.system {
		return m.System(p.name)
	}
	return m.User(p.name)
}

func (p property) eval(m Message) (any, error) {
	v, _ := p.find(m)
	return v, nil
}

type exists struct{ property }

func (e exists) eval(m Message) (any, error) {
	_, found := e.find(m)
	return found, nil
}

type isNull struct{ of node }

func (n isNull) eval(m Message) (any, error) {
	v, err := n.of.eval(m)
	return v == nil, err
}

type logic struct {
	or          bool
	left, right node
}

func (l logic) eval(m Message) (any, error) {
	a, err := truth(l.left, m)
	if err != nil || a == l.or && a != nil {
		return a, err
	}
	b, err := truth(l.right, m)
	if err != nil || b == l.or && b != nil {
		return b, err
	}
	if a == nil || b == nil {
		return nil, nil
	}
	return !l.or, nil
}

// truth returns true, false or nil.
func truth(n node, m Message) (any, error) {
	v, err := n.eval(m)
	if err != nil || v == nil {
		return nil, err
	}
	if _, is := v.(bool); !is {
		return nil, fmt.Errorf("%T where a condition was expected", v)
	}
	return v, nil
}

type negation struct{ of node }

func (n negation) eval(m Message) (any, error) {
	v, err := truth(n.of, m)
	if err != nil || v == nil {
		return nil, err
	}
	return v == false, nil
}

type comparison struct {
	op          string
	left, right node
}

func (c comparison) eval(m Message) (any, error) {
	a, err := c.left.eval(m)
	if err != nil {
		return nil, err
	}
	b, err := c.right.eval(m)
	if err != nil {
		return nil, err
	}
	r, known := compare(a, b)
	if !known {
		return nil, nil
	}
	switch c.op {
	case "=":
		return r == 0, nil
	case "<>", "!=":
		return r != 0, nil
	case "<":
		return r < 0, nil
	case "<=":
		return r <= 0, nil
	case ">":
		return r > 0, nil
	default:
		return r >= 0, nil
	}
}

// compare orders two values; known is false where they have no order.
func compare(a, b any) (r int, known bool) {
	switch x := a.(type) {
	case string:
		y, is := b.(string)
		return strings.Compare(x, y), is
	case bool:
		y, is := b.(bool)
		if !is {
			return 0, false
		}
		return cmp.Compare(bit(x), bit(y)), true
	case time.Time:
		y, is := b.(time.Time)
		return x.Compare(y), is
	}
	i, isInt := integer(a)
	j, isInt2 := integer(b)
	if isInt && isInt2 {
		return cmp.Compare(i, j), true
	}
	f, is := float(a)
	g, is2 := float(b)
	if !is || !is2 || math.IsNaN(f) || math.IsNaN(g) {
		return 0, false
	}
	return cmp.Compare(f, g), true
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func integer(v any) (int64, bool) {
	switch x := v.(type) {
	case int64:
		return x, true
	case int32:
		return int64(x), true
	case int16:
		return int64(x), true
	case int8:
		return int64(x), true
	case int:
		return int64(x), true
	case uint8:
		return int64(x), true
	case uint16:
		return int64(x), true
	case uint32:
		return int64(x), true
	case uint64:
		return int64(x), x <= math.MaxInt64
	}
	return 0, false
}

func float(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case float32:
		return float64(x), true
	case uint64:
		return float64(x), true
	}
	i, is := integer(v)
	return float64(i), is
}

type arithmetic struct {
	op          byte
	left, right node
}

var errDivision = errors.New("division by zero")

func (a arithmetic) eval(m Message) (any, error) {
	x, err := a.left.eval(m)
	if err != nil {
		return nil, err
	}
	y, err := a.right.eval(m)
	if err != nil || x == nil || y == nil {
		return nil, err
	}
	if s, is := x.(string); is && a.op == '+' {
		if t, is := y.(string); is {
			if len(s)+len(t) > 1<<16 {
				return nil, errors.New("a text longer than 64 KiB")
			}
			return s + t, nil
		}
	}
	i, isInt := integer(x)
	j, isInt2 := integer(y)
	if isInt && isInt2 {
		return integers(a.op, i, j)
	}
	f, is := float(x)
	g, is2 := float(y)
	if !is || !is2 {
		return nil, fmt.Errorf("%T %c %T", x, a.op, y)
	}
	switch a.op {
	case '+':
		return f + g, nil
	case '-':
		return f - g, nil
	case '*':
		return f * g, nil
	case '/':
		return f / g, nil
	default:
		return math.Mod(f, g), nil
	}
}

func integers(op byte, i, j int64) (any, error) {
	switch op {
	case '+':
		return i + j, nil
	case '-':
		return i - j, nil
	case '*':
		return i * j, nil
	}
	if j == 0 {
		return nil, errDivision
	}
	if op == '/' {
		return i / j, nil
	}
	return i % j, nil
}

type oneOf struct {
	left node
	list []node
}

func (o oneOf) eval(m Message) (any, error) {
	v, err := o.left.eval(m)
	if err != nil || v == nil {
		return nil, err
	}
	unknown := false
	for _, n := range o.list {
		x, err := n.eval(m)
		if err != nil {
			return nil, err
		}
		r, known := compare(v, x)
		if known && r == 0 {
			return true, nil
		}
		unknown = unknown || !known
	}
	if unknown {
		return nil, nil
	}
	return false, nil
}

type like struct {
	left, pattern, escape node
}

func (l like) eval(m Message) (any, error) {
	v, err := l.left.eval(m)
	if err != nil || v == nil {
		return nil, err
	}
	p, err := l.pattern.eval(m)
	if err != nil || p == nil {
		return nil, err
	}
	s, is := v.(string)
	pattern, is2 := p.(string)
	if !is || !is2 {
		return nil, nil
	}
	escape := rune(-1)
	if l.escape != nil {
		e, err := l.escape.eval(m)
		if err != nil {
			return nil, err
		}
		one, _ := e.(string)
		if utf8.RuneCountInString(one) != 1 {
			return nil, errors.New("ESCAPE needs one character")
		}
		escape, _ = utf8.DecodeRuneInString(one)
	}
	return likeMatch([]rune(s), []rune(pattern), escape), nil
}

// likeMatch matches % and _ with one backtracking point, so its time is at most the product of
// the lengths.
func likeMatch(s, p []rune, escape rune) bool {
	si, pi, star, mark := 0, 0, -1, 0
	for si < len(s) {
		if pi < len(p) {
			switch c := p[pi]; {
			case c == escape && pi+1 < len(p):
				if p[pi+1] == s[si] {
					si, pi = si+1, pi+2
					continue
				}
			case c == '%':
				star, mark = pi, si
				pi++
				continue
			case c == '_' || c == s[si]:
				si, pi = si+1, pi+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		si, pi = mark, star+1
	}
	for pi < len(p) && p[pi] == '%' {
		pi++
	}
	return pi == len(p)
}
