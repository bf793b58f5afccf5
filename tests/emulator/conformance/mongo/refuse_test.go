package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// The refused write of one document fails alone: the other writes of its command succeed, unless
// they are in the same transaction.
func TestWritesOfADocumentAreRefused(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	end := f.embedded(t).RefuseWrites(func(w mongo.Writing) int32 {
		if w.Collection == "c" && w.ID == "bad" && w.Document != nil {
			return 13026
		}
		return 0
	})
	_, err := c.BulkWrite(ctx, []driver.WriteModel{
		driver.NewUpdateOneModel().SetFilter(d("_id", "bad")).SetUpdate(d("$inc", d("n", 1))).SetUpsert(true),
		driver.NewUpdateOneModel().SetFilter(d("_id", "good")).SetUpdate(d("$inc", d("n", 1))).SetUpsert(true),
	}, options.BulkWrite().SetOrdered(false))
	var bulk driver.BulkWriteException
	require.ErrorAs(t, err, &bulk)
	require.Len(t, bulk.WriteErrors, 1)
	require.Equal(t, []int{0, 13026}, []int{bulk.WriteErrors[0].Index, bulk.WriteErrors[0].Code})
	require.Equal(t, []bson.D{d("_id", "good", "n", int32(1))}, all(t, c, bson.D{}))

	sc, s := begin(ctx, t, f)
	_, err = c.UpdateOne(sc, d("_id", "good"), d("$inc", d("n", 1)))
	require.NoError(t, err)
	_, err = c.InsertOne(sc, d("_id", "bad"))
	var se driver.ServerError
	require.ErrorAs(t, err, &se)
	require.True(t, se.HasErrorCode(13026), "%v", err)
	require.Error(t, s.CommitTransaction(ctx))
	require.Equal(t, []bson.D{d("_id", "good", "n", int32(1))}, all(t, c, bson.D{}))

	end()
	_, err = c.InsertOne(ctx, d("_id", "bad"))
	require.NoError(t, err)
}

// What is to be written can be what is refused, and a delete writes nothing.
func TestWritesAreRefusedForWhatTheyWrite(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	t.Cleanup(f.embedded(t).RefuseWrites(func(w mongo.Writing) int32 {
		if n, _ := w.Document.Lookup("n").AsInt64OK(); n > 1 || w.Document == nil {
			return 171
		}
		return 0
	}))
	_, err := c.InsertOne(ctx, d("_id", 1, "n", 1))
	require.NoError(t, err)
	for _, refused := range []func() error{
		func() error { _, err := c.UpdateOne(ctx, d("_id", 1), d("$inc", d("n", 1))); return err },
		func() error { _, err := c.ReplaceOne(ctx, d("_id", 1), d("n", 2)); return err },
		func() error { return c.FindOneAndUpdate(ctx, d("_id", 1), d("$inc", d("n", 1))).Err() },
		func() error { _, err := c.DeleteOne(ctx, d("_id", 1)); return err },
	} {
		var se driver.ServerError
		err := refused()
		require.ErrorAs(t, err, &se)
		require.True(t, se.HasErrorCode(171), "%v", err)
	}
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(1))}, all(t, c, bson.D{}))
}

// A transaction is refused at the write that exceeds the limit; writes outside transactions are not
// affected.
func TestTransactionsThatAreTooLargeAreRefused(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	t.Cleanup(f.embedded(t).RefuseWrites(func(w mongo.Writing) int32 {
		if w.Before >= 2 {
			return 257
		}
		return 0
	}))
	_, err := c.InsertMany(ctx, []any{d("_id", 1), d("_id", 2), d("_id", 3)})
	require.NoError(t, err)
	sc, s := begin(ctx, t, f)
	for id := 1; id <= 3; id++ {
		_, err = c.UpdateOne(sc, d("_id", id), d("$set", d("x", 1)))
		require.Equal(t, id == 3, err != nil, "%d: %v", id, err)
	}
	var se driver.ServerError
	require.ErrorAs(t, err, &se)
	require.True(t, se.HasErrorCode(257), "%v", err)
	require.Error(t, s.CommitTransaction(ctx))
	require.Len(t, all(t, c, d("x", 1)), 0)
}
