package apply

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// compact expresses the writes of several events in fewer: collection by collection and document by
// document, in order of first appearance; updates of one document are folded, and writes that a
// later replacement or deletion overwrites are left out. Inside one transaction the writes to one
// document keep their order and those to different documents do not depend on each other, with one
// exception: a unique index that two documents pass a value across. Then the database refuses the
// whole, and the events go one by one, each with its writes as they are.
func compact(writes []projection.Write) ([]projection.Write, error) {
	type document struct {
		writes []projection.Write
		fold   *Fold // of the last write, while that is an update
	}
	var collections []string
	documents := make(map[string][]*document) // by collection
	known := make(map[string]*document)
	for _, w := range writes {
		collection, id := w.Target()
		key, err := documentKey(w)
		if err != nil {
			return nil, err
		}
		d := known[key]
		if d == nil {
			d = &document{}
			known[key] = d
			if documents[collection] == nil {
				collections = append(collections, collection)
			}
			documents[collection] = append(documents[collection], d)
		}
		update, ok := w.(projection.UpdateOne)
		deletion, _ := w.(projection.DeleteOne)
		switch {
		case len(deletion.If) > 0: // it must see the writes before it
			d.writes, d.fold = append(d.writes, w), nil
		case !ok:
			d.writes, d.fold = []projection.Write{w}, nil
		case d.fold != nil && d.fold.Add([]projection.Write{w}):
			d.writes[len(d.writes)-1] = projection.UpdateOne{Collection: collection, ID: id, Upsert: d.fold.upsert, Ops: d.fold.ops, InOrder: update.InOrder}
		default:
			d.writes, d.fold = append(d.writes, w), new(Fold)
			if !d.fold.Add([]projection.Write{update}) {
				d.fold = nil // it writes twice to one field: the database decides about that
			}
		}
	}
	var out []projection.Write
	for _, collection := range collections {
		for _, d := range documents[collection] {
			out = append(out, d.writes...)
		}
	}
	return out, nil
}

// documentKey identifies a document in a map. Equal numbers are one id to the database, whatever
// their type.
func documentKey(w projection.Write) (string, error) {
	collection, id := w.Target()
	kind, value, err := bson.MarshalValue(id)
	if err != nil {
		return "", broken("the id of a write to %s cannot be written as BSON: %v", collection, err)
	}
	normal := envelope.Normal(bson.RawValue{Type: kind, Value: value})
	return collection + "\x00" + string(rune(normal.Type)) + string(normal.Value), nil
}

// Size returns about how many bytes writes take that are expressed as BSON.
func Size(writes []projection.Write) (bytes int) {
	for _, w := range writes {
		bytes += 100
		switch w := w.(type) {
		case projection.ReplaceOne:
			bytes += len(w.Document)
		case projection.UpdateOne:
			for _, op := range w.Ops {
				bytes += len(op.Field) + sizeOf(op.Value)
			}
		}
	}
	return bytes
}

func sizeOf(value any) int {
	switch v := value.(type) {
	case bson.RawValue:
		return len(v.Value)
	case string:
		return len(v)
	case bson.A: // as folded operators have it
		all := 0
		for _, element := range v {
			all += sizeOf(element)
		}
		return all
	case bson.D:
		all := 0
		for _, e := range v {
			all += len(e.Key) + sizeOf(e.Value)
		}
		return all
	}
	return 16
}
