package apply

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// An aggregate may be fed by several streams, whose positions cannot be compared. Its guard is that
// of the stream that came first, its home stream, which it names; each other stream is a guest,
// with a guard of its own in the field streams. A guard from before guards named a stream becomes
// that of the next stream that comes.

// guardSlot is the place of one stream's guard within that of an aggregate.
type guardSlot struct {
	stream string
	// guest is set if the aggregate's home stream is another one.
	guest bool
	// unguarded is set if there is a document, without a position of the stream: the filter must
	// then require that.
	unguarded bool
}

// at returns the path of the fields of a slot.
func (g guards) at(p guardSlot) string {
	if p.guest {
		return g.prefix + guardStreams + "." + projection.EscapeKey(p.stream) + "."
	}
	return g.prefix
}

// owned returns the condition that a slot still belongs to the same stream.
func (g guards) owned(p guardSlot) bson.D {
	switch {
	case p.stream == "":
		return nil
	case p.guest:
		return bson.D{{Key: g.prefix + guardStream, Value: bson.D{{Key: "$ne", Value: p.stream}}}}
	}
	return bson.D{{Key: g.prefix + guardStream, Value: bson.D{{Key: "$in", Value: bson.A{nil, p.stream}}}}}
}

// Of returns the guard for a stream's events. For a message that does not name its stream it is the
// home stream's.
func (g Guard) Of(stream string) Guard {
	if !g.isGuest(stream) {
		return g
	}
	own := g.Streams[stream]
	own.Parked = g.Parked
	return own
}

func (g Guard) isGuest(stream string) bool {
	if _, known := g.Streams[stream]; known {
		return true
	}
	return stream != "" && g.Stream != "" && g.Stream != stream
}

func (s guardState) slot(stream string) guardSlot {
	return guardSlot{stream: stream, guest: s.isGuest(stream), unguarded: s.exists && !s.Of(stream).guarded}
}

// guardOf reads a guard, with those of the guests.
func guardOf(fields bson.Raw) (g Guard) {
	g.Position, g.guarded = fields.Lookup(guardPosition).StringValueOK()
	g.Version, _ = fields.Lookup(guardVersion).AsInt64OK()
	g.First, _ = fields.Lookup(guardFirst).AsInt64OK()
	g.Stream, _ = fields.Lookup(guardStream).StringValueOK()
	streams, _ := fields.Lookup(guardStreams).DocumentOK()
	elements, _ := streams.Elements()
	for _, e := range elements {
		guest, ok := e.Value().DocumentOK()
		if !ok {
			continue
		}
		if g.Streams == nil {
			g.Streams = make(map[string]Guard)
		}
		g.Streams[projection.UnescapeKey(e.Key())] = guardOf(guest)
	}
	return g
}
