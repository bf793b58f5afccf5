package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func requireRefused(t *testing.T, err error, id any) {
	t.Helper()
	var we driver.WriteException
	require.ErrorAs(t, err, &we)
	require.Len(t, we.WriteErrors, 1)
	require.Equal(t, 121, we.WriteErrors[0].Code)
	require.Equal(t, "Document failed validation", we.WriteErrors[0].Message)
	_, got, err := bson.MarshalValue(id)
	require.NoError(t, err)
	require.Equal(t, got, we.WriteErrors[0].Details.Lookup("failingDocumentId").Value)
}

func TestValidatorRefusesDocuments(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0) // whose refusals name the document
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertOne(ctx, d("_id", int32(0), "n", -1)) // from before the validator
	require.NoError(t, err)
	f.command(t, "db", d("collMod", "c", "validator", d("n", d("$gte", 0))))

	_, err = c.InsertOne(ctx, d("_id", int32(1), "n", -1))
	requireRefused(t, err, int32(1))
	_, err = c.InsertOne(ctx, d("_id", int32(1), "n", 1))
	require.NoError(t, err)
	_, err = c.UpdateOne(ctx, d("_id", int32(1)), d("$inc", d("n", -5)))
	requireRefused(t, err, int32(1))
	_, err = c.ReplaceOne(ctx, d("_id", int32(2)), d("n", "x"), options.Replace().SetUpsert(true))
	requireRefused(t, err, int32(2))
	_, err = c.UpdateOne(ctx, d("_id", int32(0)), d("$set", d("x", 1)))
	requireRefused(t, err, int32(0)) // strict: whatever was there before

	_, err = c.InsertOne(ctx, d("_id", int32(3), "n", -1), options.InsertOne().SetBypassDocumentValidation(true))
	require.NoError(t, err)
	f.command(t, "db", d("collMod", "c", "validationLevel", "moderate"))
	_, err = c.UpdateOne(ctx, d("_id", int32(0)), d("$set", d("x", 1)))
	require.NoError(t, err)
	_, err = c.UpdateOne(ctx, d("_id", int32(1)), d("$inc", d("n", -5)))
	requireRefused(t, err, int32(1))

	restored := restarted(t, f, mongo.Options{})
	_, err = restored.coll().InsertOne(ctx, d("_id", int32(4), "n", -1))
	requireRefused(t, err, int32(4))

	f.command(t, "db", d("collMod", "c", "validationAction", "warn"))
	_, err = c.InsertOne(ctx, d("_id", int32(4), "n", -1))
	require.NoError(t, err)
}

func TestValidatorInATransactionAbortsIt(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.command(t, "db", d("create", "c", "validator", d("n", d("$gte", 0))))
	session, err := f.client.StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	tx := driver.NewSessionContext(t.Context(), session)
	require.NoError(t, session.StartTransaction())
	_, err = f.coll().InsertOne(tx, d("_id", int32(1), "n", 1))
	require.NoError(t, err)
	_, err = f.coll().InsertOne(tx, d("_id", int32(2), "n", -1))
	require.ErrorContains(t, err, "Document failed validation")
	require.Error(t, session.CommitTransaction(tx))
	require.Empty(t, all(t, f.coll(), d()))
}

func TestJSONSchema(t *testing.T) {
	schema := d(
		"bsonType", "object", "title", "order", "required", bson.A{"total", "lines"}, "additionalProperties", false,
		"properties", d(
			"_id", d(),
			"total", d("bsonType", bson.A{"int", "long"}, "minimum", 0, "maximum", 100, "exclusiveMaximum", true),
			"state", d("enum", bson.A{"open", "paid", nil}),
			"code", d("type", "string", "minLength", 2, "maxLength", 3, "pattern", "^[A-Z]"),
			"lines", d("bsonType", "array", "minItems", 1, "maxItems", 2, "uniqueItems", true, "items", d("required", bson.A{"sku"})),
			"odd", d("oneOf", bson.A{d("bsonType", "string"), d("minimum", 5)}, "not", d("enum", bson.A{"x"})),
			"flags", d("type", "object", "additionalProperties", d("type", "boolean"), "maxProperties", 1),
		),
	)
	f := serve(t, mongo.Options{})
	f.command(t, "db", d("create", "c", "validator", d("$jsonSchema", schema)))
	line := bson.A{d("sku", "a")}
	for _, test := range []struct {
		name string
		doc  bson.D
		ok   bool
	}{
		{"all that is asked", d("total", 0, "lines", line), true},
		{"not of the pattern", d("total", int64(99), "state", nil, "code", "ÄB", "lines", bson.A{d("sku", 1), d("sku", 2)}, "odd", 7, "flags", d("a", true)), false},
		{"all that is known", d("total", int64(99), "state", nil, "code", "AÄ", "lines", bson.A{d("sku", 1), d("sku", 2)}, "flags", d("a", true)), true},
		{"nothing", d(), false},
		{"a part is missing", d("total", 1), false},
		{"another field", d("total", 1, "lines", line, "more", 1), false},
		{"another type", d("total", 1.5, "lines", line), false},
		{"below the minimum", d("total", -1, "lines", line), false},
		{"at an exclusive maximum", d("total", 100, "lines", line), false},
		{"not in the list", d("total", 1, "lines", line, "state", "lost"), false},
		{"too short", d("total", 1, "lines", line, "code", "A"), false},
		{"too long", d("total", 1, "lines", line, "code", "ABCD"), false},
		{"characters, not bytes", d("total", 1, "lines", line, "code", "AÄÄ"), true},
		{"no item", d("total", 1, "lines", bson.A{}), false},
		{"too many items", d("total", 1, "lines", bson.A{d("sku", 1), d("sku", 2), d("sku", 3)}), false},
		{"items twice", d("total", 1, "lines", bson.A{d("sku", 1), d("sku", 1)}), false},
		{"an item that is not right", d("total", 1, "lines", bson.A{d("name", 1)}), false},
		{"one of two", d("total", 1, "lines", line, "odd", 4), false},
		{"both of two", d("total", 1, "lines", line, "odd", "text"), false}, // minimum does not apply to text
		{"of another type inside", d("total", 1, "lines", line, "flags", d("a", 1)), false},
		{"too many fields inside", d("total", 1, "lines", line, "flags", d("a", true, "b", true)), false},
	} {
		_, err := f.coll().InsertOne(t.Context(), test.doc)
		require.Equal(t, test.ok, err == nil, "%s: %v", test.name, err)
	}
	n, err := f.coll().CountDocuments(t.Context(), d("$jsonSchema", d("properties", d("total", d("minimum", 50)))))
	require.NoError(t, err)
	require.EqualValues(t, 1, n)

	refused := []any{d("$jsonSchema", 1), d("$jsonSchema", d("required", bson.A{})), d("$where", "1")}
	if f.srv != nil {
		refused = append(refused, d("$jsonSchema", d("patternProperties", d())))
	}
	for _, bad := range refused {
		require.Error(t, f.client.Database("db").RunCommand(t.Context(), d("create", "x", "validator", bad)).Err(), "%v", bad)
	}
}
