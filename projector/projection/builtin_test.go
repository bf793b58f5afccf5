package projection_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// change returns an event of an operation with a body in Extended JSON.
func change(t *testing.T, operation envelope.Operation, body string) projection.Event {
	t.Helper()
	var raw bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON([]byte(body), true, &raw))
	return projection.Event{Change: envelope.Change{
		Stream: "s", Position: "8201", Epoch: 1, Aggregate: "a", Operation: operation, Type: "fallback", Body: raw,
		Time: time.Date(2026, 1, 31, 12, 0, 0, 0, time.FixedZone("", 3600)),
	}}
}

// text returns a value as Extended JSON: a RawValue may be a slice of a whole document, which
// cannot be compared.
func text(t *testing.T, v any) string {
	t.Helper()
	out, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: v}}, false, false)
	require.NoError(t, err)
	return string(out)
}

func TestTimeline(t *testing.T) {
	for _, test := range []struct {
		name, body string
		operation  envelope.Operation
		want       string // of the operators; empty for no write
	}{
		{
			"as the document has it", `{"fullDocument": {"type": "E.Sys.", "occurredAt": "2018-01-02T12:53:00Z"}}`, envelope.Insert,
			`{"v":[{"k":"$inc","f":"events","v":1},{"k":"$inc","f":"types.E%2ESys%2E","v":1},{"k":"$set","f":"lastType","v":"E.Sys."},` +
				`{"k":"$setOnInsert","f":"firstOccurredAt","v":"2018-01-02T12:53:00Z"},{"k":"$set","f":"lastOccurredAt","v":"2018-01-02T12:53:00Z"}]}`,
		},
		{
			"as the message has it", `{"fullDocument": {"occurredAt": null}}`, envelope.Insert,
			`{"v":[{"k":"$inc","f":"events","v":1},{"k":"$inc","f":"types.fallback","v":1},{"k":"$set","f":"lastType","v":"fallback"},` +
				`{"k":"$setOnInsert","f":"firstOccurredAt","v":"2026-01-31T11:00:00Z"},{"k":"$set","f":"lastOccurredAt","v":"2026-01-31T11:00:00Z"}]}`,
		},
		{
			"a date stays a date", `{"fullDocument": {"type": "", "occurredAt": {"$date": {"$numberLong": "0"}}}}`, envelope.Insert,
			`{"v":[{"k":"$inc","f":"events","v":1},{"k":"$inc","f":"types.%","v":1},{"k":"$set","f":"lastType","v":""},` +
				`{"k":"$setOnInsert","f":"firstOccurredAt","v":{"$date":"1970-01-01T00:00:00Z"}},` +
				`{"k":"$set","f":"lastOccurredAt","v":{"$date":"1970-01-01T00:00:00Z"}}]}`,
		},
		{"updates do not count", `{"fullDocument": {"type": "T"}}`, envelope.Update, ""},
		{"deletes do not count", `{}`, envelope.Delete, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			writes, err := projection.Timeline{}.Project(change(t, test.operation, test.body))
			require.NoError(t, err)
			if test.want == "" {
				require.Empty(t, writes)
				return
			}
			require.Len(t, writes, 1)
			update := writes[0].(projection.UpdateOne)
			require.Equal(t, projection.UpdateOne{Collection: "timeline", ID: "a", Upsert: true, Ops: update.Ops}, update)
			require.Equal(t, test.want, text(t, ops(update.Ops)))
		})
	}
}

func TestTimelineWithoutADocumentIsPermanent(t *testing.T) {
	_, err := projection.Timeline{}.Project(change(t, envelope.Insert, `{}`))
	require.ErrorIs(t, err, projection.ErrPermanent)
}

// ops returns operators in a form that can be written down.
func ops(all []projection.Op) bson.A {
	var out bson.A
	for _, op := range all {
		out = append(out, bson.D{{Key: "k", Value: string(op.Kind)}, {Key: "f", Value: op.Field}, {Key: "v", Value: op.Value}})
	}
	return out
}

func TestMirror(t *testing.T) {
	const key = `"documentKey": {"_id": 7}, `
	for _, test := range []struct {
		name, body string
		operation  envelope.Operation
		want       string
	}{
		{"insert", `{` + key + `"fullDocument": {"_id": 7, "x": 1}}`, envelope.Insert, `{"v":["replace 7 {\"_id\": {\"$numberInt\":\"7\"},\"x\": {\"$numberInt\":\"1\"}}"]}`},
		{"replace", `{` + key + `"fullDocument": {"_id": 7}}`, envelope.Replace, `{"v":["replace 7 {\"_id\": {\"$numberInt\":\"7\"}}"]}`},
		{
			"update with the document", `{` + key + `"fullDocument": {"_id": 7}, "updateDescription": {"updatedFields": {"x": 1}}}`, envelope.Update,
			`{"v":["replace 7 {\"_id\": {\"$numberInt\":\"7\"}}"]}`,
		},
		{
			"update with the changes",
			`{` + key + `"updateDescription": {"updatedFields": {"x.y": 1, "list.0": "b"}, "removedFields": ["z"],
			  "truncatedArrays": [{"field": "list", "newSize": 3}]}}`, envelope.Update,
			`{"v":["update 7",[{"k":"$push","f":"list","v":{"$each":[],"$slice":3}}],` +
				`"update 7",[{"k":"$set","f":"x.y","v":1},{"k":"$set","f":"list.0","v":"b"},{"k":"$unset","f":"z","v":""}]]}`,
		},
		{"update of what is gone", `{` + key + `"fullDocument": null}`, envelope.Update, `{"v":null}`},
		{"delete", `{` + key + `"fullDocumentBeforeChange": {"_id": 7}}`, envelope.Delete, `{"v":["delete 7"]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			writes, err := projection.Mirror{}.Project(change(t, test.operation, test.body))
			require.NoError(t, err)
			var got bson.A
			for _, w := range writes {
				collection, id := w.Target()
				require.Equal(t, "mirror", collection)
				require.Equal(t, int64(7), id.(bson.RawValue).AsInt64())
				switch w := w.(type) {
				case projection.ReplaceOne:
					got = append(got, "replace 7 "+w.Document.String())
				case projection.UpdateOne:
					require.False(t, w.Upsert, "an update alone must not make a document")
					got = append(got, "update 7", ops(w.Ops))
				case projection.DeleteOne:
					got = append(got, "delete 7")
				}
			}
			require.Equal(t, test.want, text(t, got))
		})
	}
}

func TestMirrorRefusesWhatItCannotRepeat(t *testing.T) {
	for name, e := range map[string]projection.Event{
		"no key":                   change(t, envelope.Delete, `{}`),
		"insert without document":  change(t, envelope.Insert, `{"documentKey": {"_id": 7}}`),
		"update without anything":  change(t, envelope.Update, `{"documentKey": {"_id": 7}}`),
		"removed field not a name": change(t, envelope.Update, `{"documentKey": {"_id": 7}, "updateDescription": {"removedFields": [1]}}`),
		"truncation without size":  change(t, envelope.Update, `{"documentKey": {"_id": 7}, "updateDescription": {"truncatedArrays": [{"field": "a"}]}}`),
	} {
		_, err := projection.Mirror{}.Project(e)
		require.ErrorIs(t, err, projection.ErrPermanent, name)
	}
}

func TestPermanentKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	err := projection.Permanent(cause)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, projection.ErrPermanent)
	require.EqualError(t, err, "cause")
	require.NoError(t, projection.Permanent(nil))
}

type named struct {
	projection.Timeline
	name string
}

func (n named) Name() string { return n.name }

func TestRegistry(t *testing.T) {
	r, err := projection.NewRegistry(projection.Mirror{}, projection.Timeline{})
	require.NoError(t, err)
	require.Equal(t, []string{"mirror", "timeline"}, r.Names())
	require.NoError(t, r.Register(named{name: "mine"}))
	require.Equal(t, []string{"mine", "mirror", "timeline"}, r.Names())
	p, ok := r.Lookup("mine")
	require.True(t, ok)
	require.Equal(t, "mine", p.Name())
	_, ok = r.Lookup("other")
	require.False(t, ok)
	for _, bad := range []string{"mine", "", "a b", "$x", "system.x"} {
		require.Error(t, r.Register(named{name: bad}), bad)
	}
	one := projection.Builtin()
	require.Subset(t, one.Names(), []string{"mirror", "orders", "timeline"})
	require.NoError(t, one.Register(named{name: "mine"}))
	require.NotContains(t, projection.Builtin().Names(), "mine", "registries share nothing")
}
