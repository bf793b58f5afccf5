package projectiontest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

// hotTimes is how many other sets of aggregates have to write to a document that every aggregate
// writes to.
const hotTimes = 4

// hot returns the documents that every aggregate writes to, whatever values the fields of its
// events have.
func (k *kit) hot() (warnings []string) {
	ways := []variation{{aggregates: true}, {aggregates: true, identifiers: true}}
	for _, field := range variable(k.base(), k.few) {
		ways = append(ways, variation{aggregates: true, field: field})
	}
	var common map[document]any
	for _, way := range ways {
		written, ok := k.writtenByAll(way)
		switch {
		case !ok: // no history that the projection takes
		case common == nil:
			common = written
		default:
			maps.DeleteFunc(common, func(d document, _ any) bool {
				_, still := written[d]
				return !still
			})
		}
	}
	for d, id := range common {
		warnings = append(warnings, fmt.Sprintf("every aggregate writes to %s %s: their writes wait for each other there, so all projectors together "+
			"are limited to the write rate of one document. If that is too slow, spread it over several documents, by a hash of the aggregate, "+
			"and add them up when reading", d.collection, memory.Text(id)))
	}
	slices.Sort(warnings)
	return warnings
}

// writtenByAll returns the documents that every aggregate writes to, each with its _id, when the
// given events are repeated in one variation; ok is false if the projection refuses such events.
func (k *kit) writtenByAll(way variation) (all map[document]any, ok bool) {
	writers := make(map[document]map[string]bool)
	all = make(map[document]any)
	aggregates := make(map[string]bool)
	for n := range hotTimes {
		events := k.base()
		if n > 0 {
			events = k.varied(way, n)
		}
		for _, e := range stampFrom(events, n*len(events)) {
			aggregates[e.Aggregate] = true
			writes, err := apply.Project(k.projection, e.Change)
			if err != nil {
				return nil, false
			}
			for _, w := range writes {
				collection, id := w.Target()
				key, _, err := memory.Key(id)
				if err != nil {
					return nil, false
				}
				d := document{collection, key}
				if writers[d] == nil {
					writers[d] = make(map[string]bool)
				}
				writers[d][e.Aggregate], all[d] = true, id
			}
		}
	}
	maps.DeleteFunc(all, func(d document, _ any) bool { return len(writers[d]) < len(aggregates) })
	return all, true
}
