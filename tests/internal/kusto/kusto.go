// Package kusto runs the Kusto queries of the alerts over records in memory, so that tests can
// prove that an alert fires. It supports the operators and functions that these queries use;
// anything else is an error. Whether a query is valid Kusto is checked by Microsoft's parser
// (tests/deploy/kusto).
package kusto

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Row is one row of a table. A value is nil, bool, int64, float64, string, time.Time,
// time.Duration, or a value from JSON.
type Row map[string]any

// table is the input and the output of an operator.
type table []Row

type parser struct {
	tokens []token
	at     int
	tables map[string]table
	lets   map[string]any // a value or a table
	now    time.Time
}

// Run returns the result of the query over the tables at the time now: the value of each column by
// row.
func Run(query string, tables map[string][]Row, now time.Time) ([]Row, error) {
	tokens, err := scan(query)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, tables: map[string]table{}, lets: map[string]any{}, now: now}
	for name, rows := range tables {
		p.tables[name] = rows
	}
	var result table
	err = caught(func() {
		for p.take("let") {
			name := p.name()
			p.need("=")
			if p.isTable() {
				p.lets[name] = p.pipeline()
			} else {
				p.lets[name] = p.expression()(&scope{p: p})
			}
			p.need(";")
		}
		result = p.pipeline()
		if p.peek().kind != 'e' {
			fail("behind the query: %q", p.peek().text)
		}
	})
	return result, err
}

type problem struct{ error }

func fail(format string, args ...any) { panic(problem{fmt.Errorf(format, args...)}) }

func caught(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case problem:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take(text string) bool {
	if t := p.peek(); t.text == text && (t.kind == 'i' || t.kind == 'o') {
		p.at++
		return true
	}
	return false
}

func (p *parser) need(text string) {
	if !p.take(text) {
		fail("expected %q, found %q", text, p.peek().text)
	}
}

func (p *parser) name() string {
	t := p.peek()
	if t.kind != 'i' {
		fail("expected a name, found %q", t.text)
	}
	p.at++
	return t.text
}

// isTable reports whether a table comes next.
func (p *parser) isTable() bool {
	_, given := p.tables[p.peek().text]
	_, made := p.lets[p.peek().text].(table)
	return given || made
}

func (p *parser) pipeline() table {
	name := p.name()
	t, found := p.tables[name]
	if made, ok := p.lets[name].(table); ok {
		t, found = made, true
	}
	if !found {
		fail("there is no table %s", name)
	}
	for p.take("|") {
		switch operator := p.name(); operator {
		case "where":
			t = keep(p, t, p.expression())
		case "extend":
			t = p.assigned(t, p.assignments(), true)
		case "project":
			t = p.assigned(t, p.assignments(), false)
		case "order":
			p.need("by")
			t = p.ordered(t)
		case "summarize":
			t = p.summarized(t)
		default:
			fail("the operator %s is not known here", operator)
		}
	}
	return t
}

func keep(p *parser, t table, condition expression) (kept table) {
	for i, row := range t {
		if condition(&scope{p: p, rows: t, at: i}) == true {
			kept = append(kept, row)
		}
	}
	return kept
}

// assignment is one column of extend, project or by.
type assignment struct {
	name  string
	value expression
}

func (p *parser) assignments() (all []assignment) {
	for {
		a := assignment{name: fmt.Sprint("Column", len(all)+1)}
		if p.peek().kind == 'i' {
			if a.name = p.peek().text; p.tokens[p.at+1].text == "=" {
				p.at += 2
			} else if p.tokens[p.at+1].text == "(" {
				a.name += "_"
			}
		}
		a.value = p.expression()
		all = append(all, a)
		if !p.take(",") {
			return all
		}
	}
}

// assigned returns the table with the columns; with extended it keeps the existing ones.
func (p *parser) assigned(t table, columns []assignment, extended bool) (made table) {
	for i := range t {
		row := Row{}
		if extended {
			maps.Copy(row, t[i])
		}
		for _, a := range columns {
			row[a.name] = a.value(&scope{p: p, rows: t, at: i})
		}
		made = append(made, row)
	}
	return made
}

func (p *parser) ordered(t table) table {
	type key struct {
		name string
		sign int
	}
	var keys []key
	for {
		k := key{p.name(), -1} // descending unless the query specifies otherwise
		if p.take("asc") {
			k.sign = 1
		} else {
			p.take("desc")
		}
		keys = append(keys, k)
		if !p.take(",") {
			break
		}
	}
	rows := slices.Clone(t)
	slices.SortStableFunc(rows, func(a, b Row) int {
		for _, k := range keys {
			if c := compare(a[k.name], b[k.name]); c != 0 {
				return c * k.sign
			}
		}
		return 0
	})
	return rows
}

// aggregate is one column of summarize, or the columns of arg_max.
type aggregate struct {
	assignment
	columns []string // of the row with the greatest value; nil unless it is arg_max
}

func (p *parser) summarized(t table) (made table) {
	var aggregates []aggregate
	for p.peek().text != "by" {
		aggregates = append(aggregates, p.aggregated())
		if !p.take(",") {
			break
		}
	}
	var by []assignment
	if p.take("by") {
		by = p.assignments()
	}
	groups, order := map[string][]Row{}, []string{}
	keys := map[string]Row{}
	for i, row := range t {
		key := Row{}
		var text strings.Builder
		for _, b := range by {
			key[b.name] = b.value(&scope{p: p, rows: t, at: i})
			fmt.Fprintf(&text, "%v|", key[b.name])
		}
		if _, seen := groups[text.String()]; !seen {
			order, keys[text.String()] = append(order, text.String()), key
		}
		groups[text.String()] = append(groups[text.String()], row)
	}
	if len(by) == 0 && len(order) == 0 {
		order, keys[""] = []string{""}, Row{}
	}
	for _, k := range order {
		row := keys[k]
		for _, a := range aggregates {
			if a.columns != nil {
				best := -1
				value := func(i int) any { return a.value(&scope{p: p, rows: groups[k], at: i}) }
				for i := range groups[k] {
					if best < 0 || compare(value(i), value(best)) > 0 {
						best = i
					}
				}
				for _, column := range a.columns {
					row[column] = groups[k][best][column]
				}
				continue
			}
			row[a.name] = a.value(&scope{p: p, group: groups[k], grouped: true})
		}
		made = append(made, row)
	}
	return made
}

// aggregated reads an aggregate. Arithmetic over one, such as max(x) / 1000.0, is one expression.
func (p *parser) aggregated() (a aggregate) {
	if p.take("arg_max") {
		p.need("(")
		a.value, a.columns = p.expression(), []string{}
		for p.take(",") {
			a.columns = append(a.columns, p.name())
		}
		p.need(")")
		return a
	}
	if a.name = p.name(); !p.take("=") {
		p.at--
		a.name += "_" // after its function
	}
	a.value = p.expression()
	return a
}
