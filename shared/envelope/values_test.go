package envelope_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Every possible id of an aggregate is found by the text that it has in messages and read models.
func TestEveryIDIsFoundByItsText(t *testing.T) {
	t.Parallel()
	decimal, err := bson.ParseDecimal128("1.50")
	require.NoError(t, err)
	for name, value := range map[string]any{
		"string": "order-7", "digits": "17", "json": `{"a": 1}`, "quotes": `a"b`, "hex": "692b4c1c0000000329044c00",
		"int32": int32(17), "int64": int64(1) << 60, "negative": int64(-3), "double": 17.25, "large double": 1e300,
		"decimal": decimal, "bool": true, "date": bson.DateTime(1_700_000_000_123), "object id": bson.NewObjectID(),
		"uuid":     bson.Binary{Subtype: bson.TypeBinaryUUID, Data: []byte("0123456789abcdef")},
		"binary":   bson.Binary{Subtype: bson.TypeBinaryGeneric, Data: []byte("0123456789abcdef")},
		"document": bson.D{{Key: "shop", Value: int32(1)}, {Key: "number", Value: int64(2)}},
	} {
		raw := rawValue(t, value)
		text, ok := envelope.Text(raw)
		require.True(t, ok, name)
		require.Contains(t, types(t, envelope.Values(text, false)), envelope.Normal(raw).String(), "%s: %s", name, text)
		require.Contains(t, types(t, envelope.Values(text, false)), rawValue(t, text).String(), "%s: the text itself", name)
	}
}

// A document without an id of its aggregate is an aggregate by its _id, even if that has no text.
func TestAnIDWithoutATextIsFound(t *testing.T) {
	t.Parallel()
	for _, value := range []any{nil, ""} {
		raw := rawValue(t, value)
		require.Contains(t, types(t, envelope.Values(raw.String(), true)), raw.String())
		require.NotContains(t, types(t, envelope.Values(raw.String(), false)), raw.String(),
			"at the path, every document without an id would be meant")
	}
}

func rawValue(t *testing.T, value any) bson.RawValue {
	t.Helper()
	document, err := bson.Marshal(bson.D{{Key: "v", Value: value}})
	require.NoError(t, err)
	return bson.Raw(document).Lookup("v")
}

// types returns values, each in the form that stands for all equal ones, as canonical Extended
// JSON, which shows their types.
func types(t *testing.T, values bson.A) []string {
	t.Helper()
	var all []string
	for _, v := range values {
		all = append(all, envelope.Normal(rawValue(t, v)).String())
	}
	return all
}
