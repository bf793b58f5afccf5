package query

import (
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// positions resolve the operators of an update path that stand for array
// elements: $ (the element the filter met), $[] (every one) and $[name] (those an
// array filter chooses).
type positions struct {
	filter  bson.D
	filters map[string]*Matcher // by name, over a document {name: element}
	env     *Env
}

// Positional gives the update what the positional operators in its paths refer
// to: the statement's filter, and its arrayFilters. Errors as a server's:
// FailedToParse for a filter that is not used or not understood, BadValue for a
// name without a filter.
func (u *Update) Positional(filter bson.D, arrayFilters bson.A) error {
	if len(arrayFilters) == 0 && !slices.ContainsFunc(u.mods, func(m modifier) bool { return slices.ContainsFunc(m.parts, positional) }) {
		return nil
	}
	p := &positions{filter: filter, filters: map[string]*Matcher{}, env: u.env}
	used := map[string]bool{}
	for _, m := range u.mods {
		for _, part := range m.parts {
			if name, ok := elementName(part); ok && name != "" {
				used[name] = true
			}
		}
	}
	if len(arrayFilters) > 0 && u.mods == nil {
		return mongoerr.New(mongoerr.FailedToParse, "Cannot specify arrayFilters and a pipeline or replacement update")
	}
	for _, item := range arrayFilters {
		d, ok := item.(bson.D)
		if !ok || len(d) == 0 {
			return mongoerr.New(mongoerr.FailedToParse, "Cannot use an expression without a top-level field name in arrayFilters")
		}
		names := filterNames(d, nil)
		if len(names) > 1 {
			return mongoerr.New(mongoerr.FailedToParse, "Error parsing array filter :: caused by :: Expected a single top-level field name, found '%s' and '%s'", names[0], names[1])
		}
		name := strings.Join(names, "")
		if name == "" || name[0] < 'a' || name[0] > 'z' {
			return mongoerr.New(mongoerr.BadValue, "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '%s'", name)
		}
		if p.filters[name] != nil {
			return mongoerr.New(mongoerr.FailedToParse, "Found multiple array filters with the same top-level field name %s", name)
		}
		if !used[name] {
			return mongoerr.New(mongoerr.FailedToParse, "The array filter for identifier '%s' was not used in the update", name)
		}
		m, err := Compile(d, u.env)
		if err != nil {
			return err
		}
		p.filters[name] = m
	}
	for name := range used {
		if p.filters[name] == nil {
			return mongoerr.New(mongoerr.BadValue, "No array filter found for identifier '%s'", name)
		}
	}
	u.positions = p
	return nil
}

// filterNames returns the first path elements of an array filter's conditions; there should be one.
func filterNames(d bson.D, names []string) []string {
	for _, e := range d {
		if !strings.HasPrefix(e.Key, "$") {
			name, _, _ := strings.Cut(e.Key, ".")
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			continue
		}
		list, _ := e.Value.(bson.A)
		for _, item := range list {
			if inner, ok := item.(bson.D); ok {
				names = filterNames(inner, names)
			}
		}
	}
	return names
}

// elementName reads $[name]; "" is $[].
func elementName(part string) (string, bool) {
	inner, ok := strings.CutPrefix(part, "$[")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(inner, "]")
}

func positional(part string) bool {
	_, named := elementName(part)
	return named || part == "$"
}

// expand gives the modifiers with concrete paths that one with positional
// operators stands for in a document.
func (p *positions) expand(doc bson.D, m modifier, inserting bool) ([]modifier, error) {
	at := -1
	for i, part := range m.parts {
		if positional(part) {
			at = i
			break
		}
	}
	if at < 0 {
		return []modifier{m}, nil
	}
	prefix := m.parts[:at]
	v, found := getPath(doc, prefix)
	list, isArray := v.(bson.A)
	var indexes []int
	if m.parts[at] == "$" {
		i, ok := p.met(doc, strings.Join(prefix, "."))
		if !ok || inserting {
			return nil, mongoerr.New(mongoerr.BadValue, "The positional operator did not find the match needed from the query.")
		}
		indexes = []int{i}
	} else {
		if !found {
			return nil, mongoerr.New(mongoerr.BadValue, "The path '%s' must exist in the document in order to apply array updates.", strings.Join(prefix, "."))
		}
		if !isArray {
			return nil, mongoerr.New(mongoerr.BadValue, "Cannot apply array updates to non-array element %s", strings.Join(prefix, "."))
		}
		name, _ := elementName(m.parts[at])
		for i, item := range list {
			if name != "" {
				ok, err := p.filters[name].Match(bson.D{{Key: name, Value: item}})
				if err != nil {
					return nil, err
				}
				if !ok {
					continue
				}
			}
			indexes = append(indexes, i)
		}
	}
	var out []modifier
	for _, i := range indexes {
		parts := append(append(append([]string{}, prefix...), strconv.Itoa(i)), m.parts[at+1:]...)
		more, err := p.expand(doc, modifier{op: m.op, path: strings.Join(parts, "."), parts: parts, arg: m.arg}, inserting)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// met returns the element that the filter met: of the conditions that reached into an array the
// last one decides, whichever array that was, as on a server, which leaves it undefined.
func (p *positions) met(doc bson.D, path string) (int, bool) {
	v, _ := getPath(doc, value.Split(path))
	if _, ok := v.(bson.A); !ok {
		return 0, false
	}
	return p.last(doc, p.filter)
}

// last returns the element at which the last condition of the filter that holds by an element
// holds.
func (p *positions) last(doc, filter bson.D) (at int, found bool) {
	note := func(i int, ok bool) {
		if ok {
			at, found = i, true
		}
	}
	for _, e := range filter {
		list, _ := e.Value.(bson.A)
		switch {
		case e.Key == "$and":
			for _, item := range list {
				if d, ok := item.(bson.D); ok {
					note(p.last(doc, d))
				}
			}
		case e.Key == "$or":
			for _, item := range list {
				d, _ := item.(bson.D)
				if m, err := Compile(d, p.env); err == nil {
					if hit, err := m.Match(doc); hit && err == nil {
						note(p.last(doc, d))
						break
					}
				}
			}
		case strings.HasPrefix(e.Key, "$"):
		default:
			note(p.element(doc, e))
		}
	}
	return at, found
}

// element returns the index of the item for which a condition holds, in the first array on its path
// that has one.
func (p *positions) element(doc bson.D, e bson.E) (int, bool) {
	leaves, err := compileField(e.Value, p.env)
	if err != nil || slices.ContainsFunc(leaves, func(l leaf) bool { return l.negate || l.none != nil }) {
		return 0, false
	}
	parts := value.Split(e.Key)
	for n := 1; n <= len(parts); n++ {
		v, _ := getPath(doc, parts[:n])
		items, isArray := v.(bson.A)
		if !isArray {
			continue
		}
		if n < len(parts) {
			if _, byPlace := value.Index(parts[n]); byPlace {
				continue
			}
		}
		for i, item := range items {
			hit, err := all(leaves, item, true)
			if n < len(parts) {
				hit, err = atPath(strings.Join(parts[n:], "."), leaves)(item)
			}
			if hit && err == nil {
				return i, true
			}
		}
		return 0, false
	}
	return 0, false
}
