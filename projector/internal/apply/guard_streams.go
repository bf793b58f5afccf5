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

// of returns the guard for a stream's events. For a message that does not name its stream it is the
// home stream's.
func (s guardState) of(stream string) guardState {
	if !s.isGuest(stream) {
		return s
	}
	own := s.guests[stream]
	s.position, s.guarded, s.version, s.first = own.position, own.guarded, own.version, own.first
	return s
}

func (s guardState) isGuest(stream string) bool {
	if _, known := s.guests[stream]; known {
		return true
	}
	return stream != "" && s.stream != "" && s.stream != stream
}

func (s guardState) slot(stream string) guardSlot {
	return guardSlot{stream: stream, guest: s.isGuest(stream), unguarded: s.exists && !s.of(stream).guarded}
}

// readStreams reads the guests' guards.
func (s *guardState) readStreams(guard bson.Raw) {
	s.stream, _ = guard.Lookup(guardStream).StringValueOK()
	streams, _ := guard.Lookup(guardStreams).DocumentOK()
	elements, _ := streams.Elements()
	for _, e := range elements {
		own, ok := e.Value().DocumentOK()
		if !ok {
			continue
		}
		var guest guardState
		guest.readPosition(own)
		if s.guests == nil {
			s.guests = make(map[string]guardState)
		}
		s.guests[projection.UnescapeKey(e.Key())] = guest
	}
}

func (s *guardState) readPosition(guard bson.Raw) {
	s.position, s.guarded = guard.Lookup(guardPosition).StringValueOK()
	s.version, _ = guard.Lookup(guardVersion).AsInt64OK()
	s.first, _ = guard.Lookup(guardFirst).AsInt64OK()
}
