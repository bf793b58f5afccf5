package apply

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// encoded returns the writes of one event with ids, values and documents as BSON, so that none of
// the projection's code runs, and none of it can fail, once they are being written. Errors: what
// cannot be written as BSON, and an id that no document can have.
func encoded(writes []projection.Write) ([]projection.Write, error) {
	all := make([]projection.Write, len(writes))
	for i, w := range writes {
		collection, id := w.Target()
		id, err := encodedID(id)
		if err != nil {
			return nil, broken("the id of a write to %s %v", collection, err)
		}
		switch w := w.(type) {
		case projection.UpdateOne:
			w.ID, w.Ops = id, slices.Clone(w.Ops)
			for j, op := range w.Ops {
				if w.Ops[j].Value, err = encodedField(op.Field, op.Value); err != nil {
					break
				}
			}
			all[i] = w
		case projection.ReplaceOne:
			w.ID, err = id, w.Document.Validate()
			all[i] = w
		case projection.DeleteOne:
			w.ID, w.If = id, slices.Clone(w.If)
			for j, c := range w.If {
				if w.If[j].Value, err = encodedField(c.Field, c.Value); err != nil {
					break
				}
			}
			all[i] = w
		default:
			return nil, broken("a write to %s is a %T: only UpdateOne, ReplaceOne and DeleteOne are known", collection, w)
		}
		if err != nil {
			return nil, broken("a write to %s cannot be written as BSON: %v", collection, err)
		}
	}
	return all, nil
}

func encodedField(field string, value any) (any, error) {
	if strings.ContainsRune(field, 0) {
		return nil, broken("the name of the field %q contains a NUL", field)
	}
	return encodedValue(value)
}

// encodedValue returns a value as BSON, or unchanged if its type is one that [merge] calculates
// with, and that cannot fail.
func encodedValue(value any) (any, error) {
	switch value.(type) {
	case nil, bool, string, int, int32, int64, float64, time.Time, bson.ObjectID, bson.DateTime:
		return value, nil
	}
	return rawValue(value)
}

func rawValue(value any) (bson.RawValue, error) {
	kind, data, err := bson.MarshalValue(value)
	if err != nil {
		return bson.RawValue{}, err
	}
	raw := bson.RawValue{Type: kind, Value: data}
	return raw, raw.Validate()
}

// encodedID returns an id as BSON, and a text unchanged. MongoDB refuses arrays, regular
// expressions, undefined, and names with a dollar in an _id, except for those of a DBRef; and it
// would interpret some of them as a query.
func encodedID(id any) (any, error) {
	if text, ok := id.(string); ok {
		return text, nil
	}
	raw, err := rawValue(id)
	if err != nil {
		return nil, broken("cannot be written as BSON: %v", err)
	}
	switch raw.Type {
	case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
		return nil, broken("is of type %s, which no _id can be", raw.Type)
	case bson.TypeString:
		return raw.StringValue(), nil
	default: // an _id can have any other type, except for the names in a document
	}
	if name := dollarName(raw); name != "" {
		return nil, broken("has a field %q, which no _id can have", name)
	}
	return raw, nil
}

// dollarName returns the name of a field in a value that begins with a dollar and is not one of a
// DBRef's; empty without one.
func dollarName(v bson.RawValue) string {
	var elements []bson.RawElement
	if document, ok := v.DocumentOK(); ok {
		elements, _ = document.Elements()
	} else if array, ok := v.ArrayOK(); ok {
		elements, _ = bson.Raw(array).Elements()
	}
	for _, e := range elements {
		switch name := e.Key(); name {
		case "$ref", "$id", "$db":
		default:
			if strings.HasPrefix(name, "$") {
				return name
			}
		}
		if name := dollarName(e.Value()); name != "" {
			return name
		}
	}
	return ""
}
