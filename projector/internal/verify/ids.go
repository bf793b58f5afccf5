package verify

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// oneOf is the condition that a path leads to one of the values; none where there are no values.
func oneOf(path string, values bson.A) []bson.D {
	if path == "" || len(values) == 0 {
		return nil
	}
	return []bson.D{{{Key: path, Value: bson.D{{Key: "$in", Value: values}}}}}
}

// values are those that make this text an aggregate's id, at the path of its id or, in place of a missing one, as a document's _id.
// Numbers that are equal need only one of their types.
func values(text string, asID bool) bson.A {
	all := bson.A{text}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		all = append(all, n)
	}
	if id, err := bson.ObjectIDFromHex(text); err == nil {
		all = append(all, id)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		all = append(all, bson.NewDateTimeFromTime(t))
	}
	// The rest is Extended JSON as it is, but for a UUID, and for large doubles, which the driver writes as 1E+300.0 and does
	// not read so.
	for _, json := range []string{text, `{"$uuid": "` + text + `"}`, strings.Replace(text, `.0"}`, `"}`, 1)} {
		var d struct{ V bson.RawValue }
		if err := bson.UnmarshalExtJSON([]byte(`{"v": `+json+`}`), true, &d); err == nil {
			if back, ok := envelope.Text(d.V); back == text || (asID && !ok && d.V.String() == text) {
				all = append(all, d.V)
			}
		}
	}
	return all
}
