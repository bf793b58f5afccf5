package apply

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The fields of a guard.
const (
	guardPosition = "position"
	guardEpoch    = "epoch"
	guardVersion  = "version" // of the last insert that had one
	// guardFirst is the version from which on every one up to guardVersion is known to have been
	// applied. Guards that were made before there was this field have none.
	guardFirst = "first"
	// guardStream names the stream whose the guard is, and guardStreams holds those of the others.
	guardStream  = "stream"
	guardStreams = "streams"
	guardParked  = "parked"
	// guardBuild is the build that wrote the guard, see [Applier.Build].
	guardBuild = "build"
	// guardEmpty marks a stub: a document made to hold a parked record, and kept if events were
	// given up or had no effect meanwhile. As far as the projection goes it does not exist.
	guardEmpty = "empty"
)

// guards is the place of a projection's guards.
type guards struct {
	collection *mongo.Collection
	// prefix leads to the guard in a document of the collection.
	prefix string
	// inside is set if the document belongs to the projection, so that one without effects is a
	// stub.
	inside bool
}

func guardsOf(p projection.Projection, database *mongo.Database) guards {
	g := guards{collection: database.Collection(GuardCollection(p))}
	if _, one := p.(projection.OneDocument); one {
		g.prefix, g.inside = projection.GuardField+".", true
	}
	return g
}

// GuardCollection names the collection that holds the guards of a projection.
func GuardCollection(p projection.Projection) string {
	if one, ok := p.(projection.OneDocument); ok {
		return one.Collection()
	}
	return positionsCollection(p)
}

// guardState is a guard that was read.
type guardState struct {
	Guard
	exists bool // there is a document
	empty  bool
	raw    bson.RawValue // the parked record as it was read
	build  bson.ObjectID // that wrote it; zero: none
}

// read reads the guards of aggregates. One without a document is missing.
func (g guards) read(ctx context.Context, aggregates ...string) (map[string]guardState, error) {
	found := make(map[string]guardState, len(aggregates))
	if len(aggregates) == 0 {
		return found, nil
	}
	err := g.find(ctx, "read guard", bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: aggregates}}}}, options.Find(),
		func(aggregate string, s guardState) { found[aggregate] = s })
	return found, err
}

// find calls f with the guards that a filter selects. what begins the errors of the database.
func (g guards) find(ctx context.Context, what string, filter bson.D, o *options.FindOptionsBuilder, f func(aggregate string, s guardState)) error {
	if g.inside { // the other fields are the projection's
		o.SetProjection(bson.D{{Key: projection.GuardField, Value: 1}})
	}
	cursor, err := g.collection.Find(ctx, filter, o)
	var docs []bson.Raw
	if err == nil {
		err = cursor.All(ctx, &docs)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, doc := range docs {
		id, s, err := g.decode(doc)
		if err != nil {
			return err
		}
		if id != "" {
			f(id, s)
		}
	}
	return nil
}

// decode reads the guard of a document. id is empty if it is not a string, and so not an
// aggregate's.
func (g guards) decode(doc bson.Raw) (id string, s guardState, err error) {
	id, _ = doc.Lookup("_id").StringValueOK()
	guard := doc
	if g.inside {
		guard, _ = doc.Lookup(projection.GuardField).DocumentOK()
	}
	s = guardState{Guard: guardOf(guard), exists: true, raw: guard.Lookup(guardParked)}
	s.empty, _ = guard.Lookup(guardEmpty).BooleanOK()
	s.build, _ = guard.Lookup(guardBuild).ObjectIDOK()
	if s.raw.Type != 0 {
		s.Parked = &Record{}
		if err := s.raw.Unmarshal(s.Parked); err != nil {
			return "", s, fmt.Errorf("read parked record of %s: %w", id, err)
		}
	}
	return id, s, nil
}

// condition returns the guard's condition for writing the first n events of a group: the position
// is below the first of them, the aggregate is not parked (or, in a replay, is parked as the replay
// found it), no version is missing, and the first of them is not a row of a snapshot that is
// applied already.
func (g guards) condition(group *group, n int) bson.D {
	position := bson.D{{Key: "$lt", Value: group.events[0].change.Position}}
	switch {
	case group.mustFollow(n): // the guard has the position of an event
		position = append(position, bson.E{Key: "$gt", Value: ""})
	case group.unguarded:
		position = bson.D{{Key: "$exists", Value: false}}
	}
	at := g.at(group.guardSlot)
	filter := append(bson.D{{Key: "_id", Value: group.aggregate}, {Key: at + guardPosition, Value: position}}, g.owned(group.guardSlot)...)
	if group.replay == nil {
		filter = append(filter, bson.E{Key: g.prefix + guardParked, Value: bson.D{{Key: "$exists", Value: false}}})
		if g.inside {
			filter = append(filter, bson.E{Key: g.prefix + guardEmpty, Value: bson.D{{Key: "$exists", Value: group.stub}}})
		}
	} else {
		filter = append(filter, g.fenced(group.replay.Parked.Fence())...)
	}
	// A guard without a version accepts any: the first one applied is where the count begins,
	// unless VERSION_FIRST is set.
	if _, needed := group.requiredVersion(n); needed > 0 {
		filter = append(filter, bson.E{Key: at + guardVersion, Value: bson.D{
			{Key: "$not", Value: bson.D{{Key: "$lt", Value: needed}}},
		}})
	}
	if never := group.rowCondition(at); never != nil {
		filter = append(filter, bson.E{Key: "$nor", Value: never})
	}
	return filter
}

// begins reports whether nothing of the stream was applied before, as the condition will ensure.
func (g *group) begins() bool {
	return g.unguarded || (g.replay != nil && g.replay.Of(g.stream).Position == "")
}

// requiredVersion returns the index of the first of the first n changes that has a version of its
// own, and the version that must be in the guard before it; 0 if none must be.
func (g *group) requiredVersion(n int) (index int, version int64) {
	if g.ignoreVersions {
		return 0, 0
	}
	for i, e := range g.events[:n] {
		if versioned(e.change) {
			return i, max(e.change.Version-1-g.past.before(e.change), 0)
		}
	}
	return 0, 0
}

// mustFollow reports whether the first n changes cannot be an aggregate's first, because versions
// begin below them, or because the build of the read model has read beyond them.
func (g *group) mustFollow(n int) bool {
	return g.skipsFirst(n) || g.events[0].change.Position <= g.through
}

// creates reports whether the write of the first n changes may create the document of their guard.
// In a replay there is one: the parked record is in it.
func (g *group) creates(n int) bool { return g.replay == nil && !g.mustFollow(n) }

// skipsFirst reports whether versions begin below those of the first n changes.
func (g *group) skipsFirst(n int) bool {
	at, required := g.requiredVersion(n)
	return at == 0 && g.firstVersion > 0 && required >= g.firstVersion
}

// nextGuard returns the guard after the first n events of a group, as fields and values. If none of
// them has a version, the guard keeps its own. first is the version of the first of them that has
// one, for a guard that has no first version yet; 0 if the guard is to have none.
func (g guards) nextGuard(group *group, n int) (set bson.D, first int64, whole bool) {
	last := group.events[n-1].change
	guard := bson.D{{Key: guardPosition, Value: last.Position}, {Key: guardEpoch, Value: last.Epoch}}
	if !group.guest && group.stream != "" {
		guard = append(guard, bson.E{Key: guardStream, Value: group.stream})
	}
	var version, behind int64 // behind the gap that is given up, if any
	for _, e := range group.events[:n] {
		if versioned(e.change) {
			version = e.change.Version
			if first == 0 {
				first = version
			}
			if group.past.before(e.change) > 0 {
				behind = version
			}
		}
	}
	switch {
	case version == 0:
		return guard, 0, false
	case behind > 0: // of no version before it is it known
		guard = append(guard, bson.E{Key: guardVersion, Value: version}, bson.E{Key: guardFirst, Value: behind})
		return guard, 0, true
	case group.ignoreVersions: // versions may have been left out: of no other is it known
		guard = append(guard, bson.E{Key: guardVersion, Value: version}, bson.E{Key: guardFirst, Value: version})
		return guard, 0, true
	}
	return append(guard, bson.E{Key: guardVersion, Value: version}), first, true
}

// versioned reports whether a change counts its aggregate on: an insert that carries a version.
// Other operations repeat the version of the document, or have none.
func versioned(c *envelope.Change) bool { return c.Operation == envelope.Insert && c.Version > 0 }
