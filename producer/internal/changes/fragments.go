package changes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// SplitStage makes the server deliver an event of more than 16 MB in fragments. It must be the last
// stage. MongoDB supports it from 6.0.9 and 7.0 on.
const SplitStage = "$changeStreamSplitLargeEvent"

// ErrFragment reports that reading began in the middle of a split event, which only a token set by
// an operator can cause.
var ErrFragment = errors.New("the checkpoint's token is in the middle of an event that was split, and the beginning of the event is before it; " +
	"set the checkpoint to a token before the event")

// errTorn reports fragments that do not belong together. The event is read again from its
// beginning.
var errTorn = errors.New("the fragments of a split event do not follow each other")

// fragments reassembles a split event. Its memory is the event's size.
type fragments struct {
	parts []bson.Raw
	of    int32
}

func (f *fragments) pending() bool { return len(f.parts) > 0 }

func (f *fragments) drop() { f.parts, f.of = nil, 0 }

// addFragment adds the next event of the stream. It returns the event itself if it is not split;
// the reassembled event, with the last fragment's token as _id, if this was its last fragment; and
// nil if more fragments follow. identity is the event's token, independent of how it was split.
// Errors: [ErrFragment], errTorn.
func (f *fragments) addFragment(event bson.Raw) (whole bson.Raw, identity string, err error) {
	token, ok := event.Lookup("_id").DocumentOK()
	if !ok {
		return nil, "", errors.New("read change event: it has no resume token")
	}
	split, ok := event.Lookup("splitEvent").DocumentOK()
	if !ok {
		if f.pending() {
			return nil, "", errTorn
		}
		return event, envelope.TokenText(token), nil
	}
	number, isNumber := split.Lookup("fragment").AsInt64OK()
	of, isCount := split.Lookup("of").AsInt64OK()
	switch {
	case !isNumber || !isCount || number < 1 || number > of:
		return nil, "", fmt.Errorf("read change event: its splitEvent is not {fragment, of}: %v", split)
	case !f.pending() && number != 1:
		return nil, "", ErrFragment
	case f.pending() && (number != int64(len(f.parts))+1 || of != int64(f.of)):
		return nil, "", errTorn
	}
	f.parts, f.of = append(f.parts, bytes.Clone(event)), int32(of)
	if number < of {
		return nil, "", nil
	}
	defer f.drop()
	identity = unsplit(envelope.TokenText(f.parts[0].Lookup("_id").Document()))
	whole, err = join(f.parts)
	return whole, identity, err
}

// unsplit returns the token that the event would have had unsplit, from the token of its first
// fragment, which has the fragment's number (zero) before the end mark. So a change keeps its
// identity if a fetched document has grown or shrunk when the event is read again. A token of
// another version is returned unchanged: it identifies the event just as well.
func unsplit(token string) string {
	const zeroAndEnd, end = "2904", "04"
	if before, found := strings.CutSuffix(token, zeroAndEnd); found && envelope.Sortable(token) {
		return before + end
	}
	return token
}

// join returns one document made of an event's fragments, each of which holds some of its top-level
// fields.
func join(parts []bson.Raw) (bson.Raw, error) {
	var all []bson.RawElement
	for i, part := range parts {
		elements, err := part.Elements()
		if err != nil {
			return nil, fmt.Errorf("read fragment %d of %d: %w", i+1, len(parts), err)
		}
		for _, e := range elements {
			if e.Key() == "splitEvent" || (e.Key() == "_id" && i < len(parts)-1) {
				continue
			}
			all = append(all, e)
		}
	}
	return assemble(all), nil
}

// assemble returns a document made of elements.
func assemble(elements []bson.RawElement) bson.Raw {
	size := 5 // the length at the start and the NUL at the end
	for _, e := range elements {
		size += len(e)
	}
	out := binary.LittleEndian.AppendUint32(make(bson.Raw, 0, size), uint32(size))
	for _, e := range elements {
		out = append(out, e...)
	}
	return append(out, 0)
}
