package mongo

import (
	"cmp"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// fragment is a part of an event that is too large for one document.
type fragment struct {
	raw   bson.Raw
	token keystring.Token
}

// splitOverhead is room for a fragment's token and its splitEvent field.
const splitOverhead = 4 << 10

// mostFragments is more than an event of documents of 16 MB comes in.
const mostFragments = 8

// fragments splits a large event as $changeStreamSplitLargeEvent does: by top-level field, the
// small ones first. Every fragment has its own token and a splitEvent {fragment, of}. A single
// field that is too large is BSONObjectTooLarge.
func fragments(raw bson.Raw, t keystring.Token) ([]fragment, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, err
	}
	elements = slices.DeleteFunc(elements, func(e bson.RawElement) bool { return e.Key() == "_id" })
	slices.SortStableFunc(elements, func(a, b bson.RawElement) int { return cmp.Compare(len(a), len(b)) })
	var parts [][]bson.RawElement
	size := 0
	for _, e := range elements {
		if len(e)+splitOverhead > maxEvent {
			return nil, mongoerr.New(mongoerr.BSONObjectTooLarge, "splitting a change event failed: its field %s alone has %d bytes", e.Key(), len(e))
		}
		if parts == nil || size+len(e) > value.MaxDocument-splitOverhead {
			parts, size = append(parts, nil), 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], e)
		size += len(e)
	}
	out := make([]fragment, len(parts))
	for i, fields := range parts {
		t.Fragment = i + 1
		b := value.AppendElement([]byte{0, 0, 0, 0}, "_id", t.Doc())
		b = value.AppendElement(b, "splitEvent", bson.D{{Key: "fragment", Value: int32(i + 1)}, {Key: "of", Value: int32(len(parts))}})
		for _, e := range fields {
			b = append(b, e...)
		}
		b = append(b, 0)
		b[0], b[1], b[2], b[3] = byte(len(b)), byte(len(b)>>8), byte(len(b)>>16), byte(len(b)>>24)
		out[i] = fragment{b, t}
	}
	return out, nil
}

// sized checks an event's size, or cuts it: what is left of it is then in s.fragments.
func (s *stream) sized(raw bson.Raw, t keystring.Token) (bson.Raw, error) {
	if s.split && len(raw) > value.MaxDocument {
		parts, err := fragments(raw, t)
		s.fragments = parts
		return nil, err
	}
	if len(raw) > maxEvent {
		return nil, mongoerr.New(mongoerr.BSONObjectTooLarge, "BSONObj size: %d is invalid. Size must be between 0 and %d First element: _id: { _data: \"%s\" }", len(raw), maxEvent, raw.Lookup("_id", "_data").StringValue())
	}
	return raw, nil
}

// resumeWithin continues after a fragment of an event. The event has to split
// again as it did: then what followed the fragment is next.
func (s *stream) resumeWithin(x *engine.Entry, t keystring.Token, is func(keystring.Token) bool) (bool, error) {
	within := false
	for n := 1; n <= mostFragments && !within; n++ {
		t.Fragment = n
		within = is(t)
	}
	if t.Fragment = 0; !within {
		return false, nil
	}
	if _, _, err := s.event(x, t); err != nil {
		return false, err
	}
	for i, f := range s.fragments {
		if is(f.token) {
			s.fragments = s.fragments[i+1:]
			s.advance(f.token)
			return true, nil
		}
	}
	s.fragments = nil
	return false, mongoerr.New(mongoerr.ChangeStreamFatalError, "cannot resume from a fragment of a split event: the event does not split in the same way. Use the same $changeStreamSplitLargeEvent and the same pipeline.")
}
