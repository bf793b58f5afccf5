package projectiontest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

const (
	// fewTimes is how often the given events are repeated before a document that grew is suspected.
	// A suspect is then observed for up to manyTimes, or about manyEvents: a list of the newest
	// hundred stops growing by then.
	fewTimes, manyTimes, manyEvents = 32, 256, 20_000
	// baseEvents is the largest number of given events that are repeated.
	baseEvents = 200
	// smallest is about the size of the smallest entry of an array, in bytes.
	smallest = 6
)

// document identifies a document of a model.
type document struct{ collection, key string }

// growth is one way for a history to grow.
type growth struct {
	variation
	with string // what a document grows with, for people
}

// growths returns the ways to try, those that explain the most first.
func (k *kit) growths() []growth {
	all := []growth{
		{variation{}, "the events of an aggregate"},
		{variation{aggregates: true}, "the aggregates that feed it"},
	}
	for _, field := range variable(k.base(), k.few) {
		with := "the values of " + field
		all = append(all, growth{variation{field: field}, with}, growth{variation{field: field, aggregates: true}, with})
	}
	return append(all, growth{variation{identifiers: true, aggregates: true}, "the aggregates of the whole source"})
}

// finding is a document that grows without bound.
type finding struct {
	document
	sizes
	id      any
	largest string // its largest field
	by      growth
	also    []string // other fields with whose values it grows
}

// cause returns what the document grows with, for people. Documents of a collection with the same
// cause are reported together.
func (f *finding) cause() string {
	return strings.Join(append([]string{f.by.with}, f.also...), " and of ")
}

// unbounded finds documents that grow as long as a history does.
func (k *kit) unbounded() (problems []error) {
	found := make(map[document]*finding)
	for _, g := range k.growths() {
		grown, model := k.grow(g, func(d document) bool {
			f := found[d]
			return !k.mayGrow[d.collection] && (f == nil || (f.by.field != "" && g.field != "" && g.field != f.by.field && !slices.Contains(f.also, g.field)))
		})
		for d, s := range grown {
			if f := found[d]; f != nil {
				f.also = append(f.also, g.field)
				continue
			}
			now, _ := model.ByKey(d.collection, d.key)
			found[d] = &finding{document: d, sizes: s, id: now[0].Value, largest: largest(now), by: g}
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b *finding) int {
		return cmp.Or(cmp.Compare(a.collection, b.collection), cmp.Compare(a.cause(), b.cause()), cmp.Compare(a.key, b.key))
	})
	for len(all) > 0 {
		f, n := all[0], 1
		for n < len(all) && all[n].collection == f.collection && all[n].cause() == f.cause() {
			n++
		}
		problems, all = append(problems, f.problem(n-1)), all[n:]
	}
	return problems
}

// problem reports a document, and how many others grow in the same way.
func (f *finding) problem(others int) error {
	grows, it := "grows", "it"
	switch {
	case others == 1:
		grows, it = "and 1 more document grow", "the first one"
	case others > 1:
		grows, it = fmt.Sprintf("and %d more documents grow", others), "the first one"
	}
	few := ""
	if f.by.field != "" {
		few = fmt.Sprintf(" If a field has few values, like a status or a currency, declare it: projectiontest.Few(%q).", f.by.field)
	}
	return fmt.Errorf("%s %s %s without bound, with %s: %s has %d bytes after %d times the given events, and %d after "+
		"%d times; most of it is in %s. A document ends at 16 MB, and each write to it costs more until then. Keep a document for each "+
		"entry; for the top N, make an index (Collections) and read by a sorted query with a limit.%s If you know another bound, declare it: "+
		"projectiontest.MayGrow(%q)",
		f.collection, memory.Text(f.id), grows, f.cause(), it, f.before, f.times/2, f.now, f.times, f.largest, few, f.collection)
}

// sizes are the sizes, in bytes, of a document that has grown in proportion each time that the
// history doubled.
type sizes struct {
	before, now int
	growth      int // of the last doubling
	times       int // how often the events were repeated by then
}

// grow repeats the given events in one way, until none of the documents that matter grows any more
// or enough of them are repeated. It returns the documents that still grow.
func (k *kit) grow(g growth, matters func(document) bool) (map[document]sizes, *memory.Store) {
	model := &memory.Store{}
	given := k.base()
	grown := make(map[document]sizes)
	times := 0
	repeat := func(upTo int) bool {
		for ; times < upTo; times++ {
			events := given
			if times > 0 {
				events = k.varied(g.variation, times)
			}
			if k.replay(model, stampFrom(events, times*len(given))) != nil {
				return false // no history that the projection or a database takes
			}
		}
		return true
	}
	if !repeat(1) {
		return nil, model
	}
	for d, size := range documents(model) {
		if matters(d) {
			grown[d] = sizes{now: size, times: 1}
		}
	}
	for n := fewTimes / 4; len(grown) > 0 && n <= manyTimes && (n <= fewTimes || n*len(given) <= manyEvents); n *= 2 {
		if !repeat(n) {
			return nil, model
		}
		all := documents(model)
		for d, s := range grown {
			size := all[d] // 0: it was deleted
			now := sizes{before: s.now, now: size, growth: size - s.now, times: n}
			if now.growth < (n-s.times)*smallest || now.growth*2 < s.growth*3 {
				delete(grown, d)
				continue
			}
			if s.times == 1 {
				now.growth = 0 // not yet a doubling
			}
			grown[d] = now
		}
	}
	return grown, model
}

// varied returns the given events in the n-th variation.
func (k *kit) varied(v variation, n int) []projection.Event {
	v.n, v.few = n, k.few
	return v.events(k.base())
}

// base returns the part of the given events that is repeated: whole aggregates.
func (k *kit) base() []projection.Event {
	if len(k.events) <= baseEvents {
		return k.events
	}
	taken := make(map[string]bool)
	for _, e := range k.events[:baseEvents/4] {
		taken[e.Aggregate] = true
	}
	var base []projection.Event
	for _, e := range k.events {
		if taken[e.Aggregate] && len(base) < baseEvents {
			base = append(base, e)
		}
	}
	return base
}

// documents returns the sizes of a model's documents.
func documents(model *memory.Store) map[document]int {
	all := make(map[document]int)
	for collection := range model.Collections() {
		for key, d := range model.All(collection) {
			all[document{collection, key}] = size(d)
		}
	}
	return all
}

func size(d any) int {
	written, _ := bson.Marshal(bson.D{{Key: "v", Value: d}})
	return len(written)
}

// largest returns the name of a document's largest field.
func largest(d bson.D) (field string) {
	most := -1
	for _, e := range d {
		if s := size(e.Value); s > most {
			field, most = e.Key, s
		}
	}
	return field
}
