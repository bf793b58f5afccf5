package apply

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// rowRule is how a row of a snapshot is compared with the guard. A row has the position of the
// moment at which it was read, so its position is higher than that of the event which wrote the
// document, although that event may have been applied.
type rowRule int

const (
	// byPosition compares positions, as for an event: no earlier message can have contained it.
	byPosition rowRule = iota
	// byVersion compares versions as well: a row whose version was reached is a duplicate.
	byVersion
	// onlyNew applies the row only to an aggregate without a guard, unless its writes replace whole
	// documents, which does no harm if it is repeated.
	onlyNew
)

func ruleOf(c *envelope.Change, ignoreVersions bool) rowRule {
	switch {
	case c.Row == "":
		return byPosition
	case versioned(c) && !ignoreVersions:
		return byVersion
	case c.Row == envelope.RowInitial:
		return byPosition
	}
	return onlyNew
}

// errHistoryLost is a row that may repeat what the aggregate contains.
var errHistoryLost = errors.New("the row of a snapshot shows the aggregate's document after history was lost, and without a version it is unknown " +
	"which of its events were applied: repair the aggregate (`projector verify --repair`), or build the read model again (`projector build`; one of documents " +
	"that change, by `producer snapshot start` once its projector runs with an empty one)")

// takes reports whether a change can be planned behind those of the group.
func (g *group) takes(c *envelope.Change, ignoreVersions bool) bool {
	if g == nil {
		return true
	}
	last, rule := g.events[len(g.events)-1].change, ruleOf(c, ignoreVersions)
	switch ruleOf(last, ignoreVersions) {
	case onlyNew:
		return false
	case byVersion:
		return rule == byPosition || rule == byVersion && c.Version > last.Version
	case byPosition:
	}
	return rule == byPosition
}

// rule returns the rule for the group's first change.
func (g *group) rule() rowRule {
	rule := ruleOf(g.events[0].change, g.ignoreVersions)
	if rule == onlyNew && g.events[0].replaces() {
		return byPosition
	}
	return rule
}

// replaces reports whether the writes of a change replace whole documents.
func (e planned) replaces() bool {
	for _, w := range e.writes {
		if _, whole := w.(projection.ReplaceOne); !whole {
			return false
		}
	}
	return true
}

// repeats reports whether a guard shows that the group's first change was applied as an event.
func (g *group) repeats(s Guard) bool {
	return g.rule() == byVersion && s.Version > 0 && g.events[0].change.Version <= s.Version
}

// unclear reports whether the first change is a row of which the guard does not show whether it was
// applied.
func (g *group) unclear(s Guard) bool {
	if s.Position == "" { // a parking alone leaves an empty one
		return false
	}
	switch g.rule() {
	case onlyNew:
		return true
	case byVersion:
		return s.Version == 0 && g.events[0].change.Row == envelope.RowRepeat
	case byPosition:
	}
	return false
}

// rowCondition returns what the guard at a path must not be for the group's first change to be
// applied.
func (g *group) rowCondition(at string) bson.A {
	applied := bson.E{Key: at + guardPosition, Value: bson.D{{Key: "$gt", Value: ""}}}
	switch g.rule() {
	case onlyNew:
		return bson.A{bson.D{applied}}
	case byVersion:
		first := g.events[0].change
		never := bson.A{bson.D{{Key: at + guardVersion, Value: bson.D{{Key: "$gte", Value: first.Version}}}}}
		if first.Row == envelope.RowRepeat {
			never = append(never, bson.D{applied, {Key: at + guardVersion, Value: bson.D{{Key: "$exists", Value: false}}}})
		}
		return never
	case byPosition:
	}
	return nil
}
