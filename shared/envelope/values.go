package envelope

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Values returns the BSON values whose text is this aggregate id: at the path of the id or, with
// asID, as the _id of a document in which that path is missing. Of equal numbers, one type is
// enough.
func Values(text string, asID bool) bson.A {
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
	// All other texts are Extended JSON, except UUIDs, and large doubles, which the driver writes
	// as 1E+300.0 but cannot read in this form.
	for _, json := range []string{text, `{"$uuid": "` + text + `"}`, strings.Replace(text, `.0"}`, `"}`, 1)} {
		var d struct{ V bson.RawValue }
		if err := bson.UnmarshalExtJSON([]byte(`{"v": `+json+`}`), true, &d); err == nil {
			if back, ok := Text(d.V); back == text || (asID && !ok && d.V.String() == text) {
				all = append(all, d.V)
			}
		}
	}
	return all
}
