package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// The whole way a change goes: insert, read, guarded upsert, stream, resume.
func TestDriverEndToEnd(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	cs, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(t, err)
	closing(t, cs)

	_, err = c.InsertMany(ctx, []any{d("_id", 1, "v", "a"), d("_id", 2, "v", "b")})
	require.NoError(t, err)
	var got []bson.M
	cur, err := c.Find(ctx, bson.D{}, options.Find().SetSort(d("_id", -1)))
	require.NoError(t, err)
	require.NoError(t, cur.All(ctx, &got))
	require.Equal(t, []bson.M{{"_id": int32(2), "v": "b"}, {"_id": int32(1), "v": "a"}}, got)

	guard := func(position string) error {
		_, err := c.UpdateOne(ctx, d("_id", 3, "_sluice.position", d("$lt", position)), d("$set", d("_sluice.position", position), "$inc", d("n", 1)), options.UpdateOne().SetUpsert(true))
		return err
	}
	require.NoError(t, guard("82A"))
	require.NoError(t, guard("82B"))
	require.True(t, driver.IsDuplicateKeyError(guard("82A")))

	first := next(t, cs)
	require.Equal(t, "insert", first["operationType"])
	token := cs.ResumeToken()
	kinds := []any{}
	for range 3 {
		kinds = append(kinds, next(t, cs)["operationType"])
	}
	require.Equal(t, []any{"insert", "insert", "update"}, kinds)

	again, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	require.NoError(t, err)
	closing(t, again)
	require.Equal(t, bson.D{{Key: "_id", Value: int32(2)}}, next(t, again)["documentKey"])
}
