package verify

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// oneOf returns the condition that a path leads to one of the values; nil if there are no values.
func oneOf(path string, values bson.A) []bson.D {
	if path == "" || len(values) == 0 {
		return nil
	}
	return []bson.D{{{Key: path, Value: bson.D{{Key: "$in", Value: values}}}}}
}

// IDs returns the values of an _id whose text is this aggregate id.
func IDs(aggregate string) bson.A {
	var all bson.A
	for _, id := range envelope.Values(aggregate, true) {
		kind, data, err := bson.MarshalValue(id)
		if err != nil {
			continue
		}
		if text, ok := envelope.Text(bson.RawValue{Type: kind, Value: data}); ok && text == aggregate {
			all = append(all, id)
		}
	}
	return all
}
