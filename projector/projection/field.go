package projection

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Text returns a field of the document after the change as text: a string as it is, and a value of
// any other type in the form of an aggregate id (an ObjectID as 24 hex digits, for example). The
// path is dotted: "data.customerId". It returns "" if the document has no such field, or if the
// field is null.
func (e Event) Text(path string) string {
	text, _ := envelope.Text(e.field(path))
	return text
}

// Int returns a field of the document after the change as an integer. The path is dotted. It
// returns 0 if the document has no such field, or if the field is not a number. The fraction of a
// double is cut off. Use Document to distinguish a missing field from 0.
func (e Event) Int(path string) int64 {
	n, _ := e.field(path).AsInt64OK()
	return n
}

func (e Event) field(path string) bson.RawValue {
	return e.Document().Lookup(strings.Split(path, ".")...)
}
