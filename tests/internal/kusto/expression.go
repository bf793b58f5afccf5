package kusto

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scope is the input of an expression: one row of a table, or the rows of a group.
type scope struct {
	p       *parser
	rows    []Row
	at      int
	group   []Row
	grouped bool
}

type expression func(*scope) any

func (p *parser) expression() expression { return p.or() }

func (p *parser) or() expression      { return p.chain(p.and, "or") }
func (p *parser) and() expression     { return p.chain(p.comparison, "and") }
func (p *parser) sum() expression     { return p.chain(p.product, "+", "-") }
func (p *parser) product() expression { return p.chain(p.single, "*", "/") }

// chain reads operands with some of the operators between them, which bind to the left.
func (p *parser) chain(operand func() expression, operators ...string) expression {
	left := operand()
	for {
		operator := p.peek().text
		if !slices.ContainsFunc(operators, p.take) {
			return left
		}
		a, b := left, operand()
		switch operator {
		case "or":
			left = func(s *scope) any { return a(s) == true || b(s) == true }
		case "and":
			left = func(s *scope) any { return a(s) == true && b(s) == true }
		default:
			left = func(s *scope) any { return arithmetic(a(s), operator, b(s)) }
		}
	}
}

func (p *parser) comparison() expression {
	left := p.sum()
	switch t := p.peek(); {
	case p.take("matches"):
		p.need("regex")
		form := p.sum()
		return func(s *scope) any {
			text, _ := left(s).(string)
			return regexp.MustCompile(form(s).(string)).MatchString(text)
		}
	case p.take("in"):
		p.need("(")
		var all []expression
		for !p.take(")") {
			all = append(all, p.expression())
			p.take(",")
		}
		return func(s *scope) any {
			return slices.ContainsFunc(all, func(e expression) bool { return compare(left(s), e(s)) == 0 })
		}
	case t.kind == 'o' && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
		p.at++
		right := p.sum()
		return func(s *scope) any { return compared(left(s), t.text, right(s)) }
	}
	return left
}

func compared(l any, operator string, r any) any {
	if l == nil || r == nil {
		return nil // null is neither less nor greater, and not equal
	}
	c := compare(l, r)
	return map[string]bool{"==": c == 0, "!=": c != 0, "<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0}[operator]
}

func (p *parser) single() expression {
	t := p.peek()
	p.at++
	switch t.kind {
	case 's':
		return func(*scope) any { return t.text }
	case 't':
		d, err := time.ParseDuration(strings.Replace(t.text, "d", "h", 1))
		if err != nil {
			fail("%s is no time span", t.text)
		}
		if strings.HasSuffix(t.text, "d") {
			d *= 24
		}
		return func(*scope) any { return d }
	case 'n':
		if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			return func(*scope) any { return n }
		}
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			fail("%s is no number", t.text)
		}
		return func(*scope) any { return f }
	case 'o':
		if t.text == "(" {
			within := p.expression()
			p.need(")")
			return within
		}
	case 'i':
		if p.take("(") {
			return p.call(t.text)
		}
		return p.path(t.text)
	}
	fail("expected a value, found %q", t.text)
	return nil
}

// path reads a column, a let, or a field of a JSON value.
func (p *parser) path(name string) expression {
	var fields []string
	for p.take(".") {
		fields = append(fields, p.name())
	}
	return func(s *scope) any {
		v, known := s.p.lets[name]
		if !known && s.at < len(s.rows) {
			v, known = s.rows[s.at][name]
		}
		if !known {
			fail("there is no column %s", name)
		}
		for _, field := range fields {
			object, _ := v.(map[string]any)
			v = object[field]
		}
		return v
	}
}

func (p *parser) call(name string) expression {
	if name == "toscalar" {
		t := p.pipeline()
		p.need(")")
		return func(*scope) any {
			if len(t) == 0 {
				return nil
			}
			columns := slices.Collect(maps.Keys(t[0]))
			if len(columns) > 1 {
				fail("toscalar of several columns is not known here")
			}
			return t[0][columns[0]]
		}
	}
	var arguments []expression
	for !p.take(")") {
		arguments = append(arguments, p.expression())
		p.take(",")
	}
	if over, ok := aggregates[name]; ok {
		return func(s *scope) any {
			if !s.grouped {
				fail("%s outside of summarize", name)
			}
			var rows [][]any
			for i := range s.group {
				var values []any
				for _, a := range arguments {
					values = append(values, a(&scope{p: s.p, rows: s.group, at: i}))
				}
				rows = append(rows, values)
			}
			return over(rows)
		}
	}
	f, ok := functions[name]
	if !ok {
		fail("the function %s is not known here", name)
	}
	return func(s *scope) any { return f(s, arguments) }
}

// aggregates are the functions over a group. Each gets the values of its arguments for each row.
var aggregates = map[string]func(rows [][]any) any{
	"count":   func(rows [][]any) any { return int64(len(rows)) },
	"countif": func(rows [][]any) any { return int64(len(filtered(rows, 0))) },
	"min":     func(rows [][]any) any { return extreme(rows, -1) },
	"max":     func(rows [][]any) any { return extreme(rows, 1) },
	"minif":   func(rows [][]any) any { return extreme(filtered(rows, 1), -1) },
	"maxif":   func(rows [][]any) any { return extreme(filtered(rows, 1), 1) },
	"sum": func(rows [][]any) any {
		var total any = int64(0)
		for _, r := range rows {
			if r[0] != nil {
				total = arithmetic(total, "+", r[0])
			}
		}
		return total
	},
	"dcount": func(rows [][]any) any {
		seen := map[string]bool{}
		for _, r := range rows {
			seen[fmt.Sprint(r[0])] = true
		}
		return int64(len(seen))
	},
}

func filtered(rows [][]any, by int) [][]any {
	return slices.DeleteFunc(slices.Clone(rows), func(r []any) bool { return r[by] != true })
}

func extreme(rows [][]any, sign int) (best any) {
	for _, r := range rows {
		if r[0] != nil && (best == nil || compare(r[0], best)*sign > 0) {
			best = r[0]
		}
	}
	return best
}

// parsed holds what parse_json has returned, by its text: an alert reads the same lines at every
// minute of its period. No function changes a value.
var parsed sync.Map

// functions are those over one row.
var functions = map[string]func(s *scope, a []expression) any{
	"parse_json": func(s *scope, a []expression) any {
		text, _ := a[0](s).(string)
		if v, known := parsed.Load(text); known {
			return v
		}
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			v = text // as Kusto does
		}
		parsed.Store(text, v)
		return v
	},
	"tostring": func(s *scope, a []expression) any {
		if v := a[0](s); v != nil {
			return fmt.Sprint(v)
		}
		return ""
	},
	"tolong":    func(s *scope, a []expression) any { return long(a[0](s)) },
	"long":      func(s *scope, a []expression) any { return long(a[0](s)) },
	"isnull":    func(s *scope, a []expression) any { return a[0](s) == nil },
	"isnotnull": func(s *scope, a []expression) any { return a[0](s) != nil },
	"iff": func(s *scope, a []expression) any {
		if a[0](s) == true {
			return a[1](s)
		}
		return a[2](s)
	},
	"coalesce": func(s *scope, a []expression) any {
		for _, e := range a {
			if v := e(s); v != nil {
				return v
			}
		}
		return nil
	},
	"min_of": func(s *scope, a []expression) any { return extreme([][]any{{a[0](s)}, {a[1](s)}}, -1) },
	"max_of": func(s *scope, a []expression) any { return extreme([][]any{{a[0](s)}, {a[1](s)}}, 1) },
	"prev": func(s *scope, a []expression) any {
		if s.at == 0 {
			return nil
		}
		return a[0](&scope{p: s.p, rows: s.rows, at: s.at - 1})
	},
	"ago": func(s *scope, a []expression) any { return s.p.now.Add(-a[0](s).(time.Duration)) },
	"bin": func(s *scope, a []expression) any {
		return a[0](s).(time.Time).Truncate(a[1](s).(time.Duration))
	},
	"datetime_diff": func(s *scope, a []expression) any {
		if a[0](s) != "second" {
			fail("datetime_diff in %v is not known here", a[0](s))
		}
		return int64(a[1](s).(time.Time).Sub(a[2](s).(time.Time)).Seconds())
	},
	"strcat": func(s *scope, a []expression) any {
		var b strings.Builder
		for _, e := range a {
			fmt.Fprint(&b, e(s))
		}
		return b.String()
	},
	"column_ifexists": func(s *scope, a []expression) any {
		name, _ := a[0](s).(string)
		if v, found := s.rows[s.at][name]; found {
			return v
		}
		return a[1](s)
	},
}

func long(v any) any {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func compare(l, r any) int {
	a, aIs := number(l)
	b, bIs := number(r)
	switch {
	case l == nil || r == nil:
		return cmp.Compare(btoi(l != nil), btoi(r != nil))
	case aIs && bIs:
		return cmp.Compare(a, b)
	case reflect.TypeOf(l) != reflect.TypeOf(r):
		fail("%v and %v are not of one type", l, r)
	}
	switch l := l.(type) {
	case string:
		return cmp.Compare(l, r.(string))
	case time.Time:
		return l.Compare(r.(time.Time))
	case time.Duration:
		return cmp.Compare(l, r.(time.Duration))
	case bool:
		return cmp.Compare(btoi(l), btoi(r.(bool)))
	}
	fail("%v cannot be compared", l)
	return 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func arithmetic(l any, operator string, r any) any {
	if l == nil || r == nil {
		return nil
	}
	if at, ok := l.(time.Time); ok && operator == "-" {
		if d, ok := r.(time.Duration); ok {
			return at.Add(-d)
		}
	}
	a, aIs := number(l)
	b, bIs := number(r)
	if !aIs || !bIs {
		fail("%v %s %v is not known here", l, operator, r)
	}
	v := map[string]float64{"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operator]
	_, whole := l.(int64)
	if _, too := r.(int64); whole && too {
		return int64(v)
	}
	return v
}
