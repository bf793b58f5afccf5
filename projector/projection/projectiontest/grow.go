package projectiontest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

const (
	// fewTimes is how often the given events are repeated before a document that grew is suspected; a suspicion is followed up
	// to manyTimes, or to about manyEvents: a list of the newest hundred levels off.
	fewTimes, manyTimes, manyEvents = 32, 256, 20_000
	// baseEvents is how many of the given events are repeated, at most.
	baseEvents = 200
	// smallest is how many bytes the smallest entry of an array has, nearly.
	smallest = 6
)

// document names one of a model.
type document struct{ collection, key string }

// growth is one way for a history to grow.
type growth struct {
	aggregates, identifiers bool
	with                    string // what a document grows with, for people
}

var growths = []growth{
	{false, false, "the events of an aggregate"},
	{true, false, "the aggregates that feed it"},
	{true, true, "the aggregates of the whole source"},
}

// unbounded finds documents that grow as long as a history does.
func (k *kit) unbounded() (problems []error) {
	told := make(map[document]bool)
	for _, g := range growths {
		grown, model := k.grow(g)
		for _, d := range slices.SortedFunc(maps.Keys(grown), func(a, b document) int {
			return strings.Compare(a.collection+"\x00"+a.key, b.collection+"\x00"+b.key)
		}) {
			if told[d] || k.mayGrow[d.collection] {
				continue
			}
			told[d] = true
			s := grown[d]
			now, _ := model.ByKey(d.collection, d.key)
			problems = append(problems, fmt.Errorf("%s %s grows without bound, with %s: it has %d bytes after %d times the given events, and %d after "+
				"%d times; most of it is in %s. A document ends at 16 MB, and each write to it costs more until then. Keep what grows as a document "+
				"for each entry, and for the top N make an index (Collections) and read by a sorted query with a limit. Where you know a "+
				"bound, say so: projectiontest.MayGrow(%q)",
				d.collection, memory.Text(idOf(now)), g.with, s.before, s.times/2, s.now, s.times, largest(now), d.collection))
		}
	}
	return problems
}

// sizes are those of a document that has grown in proportion each time that the history doubled.
type sizes struct {
	before, now int
	growth      int // of the last doubling
	times       int // how often the events were repeated by then
}

// grow repeats the given events, in one way, until nothing grows with them any more, or for long.
func (k *kit) grow(g growth) (map[document]sizes, *memory.Store) {
	model := &memory.Store{}
	given := k.base()
	grown := make(map[document]sizes)
	times := 0
	repeat := func(upTo int) bool {
		for ; times < upTo; times++ {
			v := variation{n: times, aggregates: g.aggregates, identifiers: g.identifiers}
			events := given
			if times > 0 {
				events = v.events(given)
			}
			if !k.add(model, stampFrom(events, times*len(given))) {
				return false // no history that the projection or a database takes
			}
		}
		return true
	}
	if !repeat(1) {
		return nil, model
	}
	for d, size := range documents(model) {
		grown[d] = sizes{now: size, times: 1}
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

// base is the part of the given events that is repeated: whole aggregates.
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

// add projects events into a model; false when one of them cannot be.
func (k *kit) add(model *memory.Store, events []projection.Event) bool {
	for _, e := range events {
		writes, err := apply.Project(k.projection, e.Change)
		if err != nil {
			return false
		}
		for _, w := range writes {
			if model.Apply(w) != nil {
				return false
			}
		}
	}
	return true
}

// documents are the sizes of a model's documents.
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

// largest names the field that has most of a document's bytes.
func largest(d bson.D) (field string) {
	most := -1
	for _, e := range d {
		if s := size(e.Value); s > most {
			field, most = e.Key, s
		}
	}
	return field
}

// hotTimes is how many other sets of aggregates have to write to a document that every aggregate writes to.
const hotTimes = 4

// hot are the documents that every aggregate writes to, though each has other customers, say, than the next.
func (k *kit) hot() (said []string) {
	writers := make(map[document]map[string]bool)
	names := make(map[document]any)
	aggregates := make(map[string]bool)
	for n := range hotTimes {
		events := k.base()
		if n > 0 {
			events = variation{n: n, aggregates: true, identifiers: true}.events(events)
		}
		for _, e := range stampFrom(events, n*len(events)) {
			aggregates[e.Aggregate] = true
			writes, err := apply.Project(k.projection, e.Change)
			if err != nil {
				return nil
			}
			for _, w := range writes {
				collection, id := w.Target()
				key, _, err := memory.Key(id)
				if err != nil {
					return nil
				}
				d := document{collection, key}
				if writers[d] == nil {
					writers[d] = make(map[string]bool)
				}
				writers[d][e.Aggregate], names[d] = true, id
			}
		}
	}
	for d, by := range writers {
		if len(by) == len(aggregates) {
			said = append(said, fmt.Sprintf("every aggregate writes to %s %s: their writes wait for each other there, and however many projectors run, "+
				"they are as fast as one document. Where that is too slow, spread it over several documents, by a hash of the aggregate, "+
				"and add them up when reading", d.collection, memory.Text(names[d])))
		}
	}
	slices.Sort(said)
	return said
}
