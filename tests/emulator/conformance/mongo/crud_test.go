package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func all(t *testing.T, c *driver.Collection, filter bson.D, opts ...options.Lister[options.FindOptions]) []bson.D {
	t.Helper()
	cur, err := c.Find(t.Context(), filter, opts...)
	require.NoError(t, err)
	var out []bson.D
	require.NoError(t, cur.All(t.Context(), &out))
	return out
}

func TestDuplicateKeyErrorShape(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	_, err := c.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("email", 1), Options: options.Index().SetUnique(true)})
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, d("_id", 1, "email", "a@x"))
	require.NoError(t, err)

	_, err = c.InsertOne(ctx, d("_id", 1))
	var we driver.WriteException
	require.ErrorAs(t, err, &we)
	require.Len(t, we.WriteErrors, 1)
	require.Equal(t, 11000, we.WriteErrors[0].Code)
	require.Equal(t, "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1 }", we.WriteErrors[0].Message)
	require.Equal(t, int32(1), we.WriteErrors[0].Raw.Lookup("keyPattern", "_id").Int32())

	_, err = c.InsertOne(ctx, d("_id", 2, "email", "a@x"))
	require.ErrorContains(t, err, `E11000 duplicate key error collection: db.c index: email_1 dup key: { email: "a@x" }`)

	err = c.FindOneAndUpdate(ctx, d("_id", 3), d("$set", d("email", "a@x")), options.FindOneAndUpdate().SetUpsert(true)).Err()
	var ce driver.CommandError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, int32(11000), ce.Code)
	require.Equal(t, "DuplicateKey", ce.Name)
	require.Equal(t, "a@x", ce.Raw.Lookup("keyValue", "email").StringValue())
	require.True(t, driver.IsDuplicateKeyError(err))

	// The key is free again once its document is gone or changed.
	_, err = c.UpdateOne(ctx, d("_id", 1), d("$set", d("email", "b@x")))
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, d("_id", 2, "email", "a@x"))
	require.NoError(t, err)
}

func TestBulkWritesOrderedAndNot(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	models := []driver.WriteModel{
		driver.NewInsertOneModel().SetDocument(d("_id", 1)),
		driver.NewInsertOneModel().SetDocument(d("_id", 1)),
		driver.NewInsertOneModel().SetDocument(d("_id", 2)),
	}
	res, err := c.BulkWrite(ctx, models)
	var be driver.BulkWriteException
	require.ErrorAs(t, err, &be)
	require.Len(t, be.WriteErrors, 1)
	require.Equal(t, 1, be.WriteErrors[0].Index)
	require.EqualValues(t, 1, res.InsertedCount)
	require.Equal(t, []bson.D{d("_id", int32(1))}, all(t, c, bson.D{}))

	_, err = c.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	require.ErrorAs(t, err, &be)
	require.Len(t, be.WriteErrors, 2)
	require.Equal(t, 0, be.WriteErrors[0].Index)
	require.Equal(t, 1, be.WriteErrors[1].Index)
	require.Equal(t, []bson.D{d("_id", int32(1)), d("_id", int32(2))}, all(t, c, bson.D{}))

	res, err = c.BulkWrite(ctx, []driver.WriteModel{
		driver.NewUpdateOneModel().SetFilter(d("_id", 1)).SetUpdate(d("$inc", d("n", 2))),
		driver.NewUpdateManyModel().SetFilter(bson.D{}).SetUpdate(d("$set", d("all", true))),
		driver.NewReplaceOneModel().SetFilter(d("_id", 9)).SetReplacement(d("r", 1)).SetUpsert(true),
		driver.NewDeleteOneModel().SetFilter(d("_id", 2)),
	})
	require.NoError(t, err)
	require.Equal(t, []int64{3, 3, 1, 1}, []int64{res.MatchedCount, res.ModifiedCount, res.UpsertedCount, res.DeletedCount})
	require.Equal(t, map[int64]any{2: int32(9)}, res.UpsertedIDs)
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(2), "all", true), d("_id", int32(9), "r", int32(1))}, all(t, c, bson.D{}))
}

func TestClientBulkWrite(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 8, 0)
	writes := []driver.ClientBulkWrite{
		{Database: "db", Collection: "a", Model: driver.NewClientInsertOneModel().SetDocument(d("_id", 1))},
		{Database: "db", Collection: "b", Model: driver.NewClientUpdateOneModel().SetFilter(d("_id", 7)).SetUpdate(d("$set", d("x", 1))).SetUpsert(true)},
		{Database: "db", Collection: "a", Model: driver.NewClientInsertOneModel().SetDocument(d("_id", 1))},
		{Database: "db", Collection: "a", Model: driver.NewClientDeleteOneModel().SetFilter(d("_id", 1))},
	}
	res, err := f.client.BulkWrite(t.Context(), writes, options.ClientBulkWrite().SetOrdered(false).SetVerboseResults(true))
	var be driver.ClientBulkWriteException
	require.ErrorAs(t, err, &be)
	require.Len(t, be.WriteErrors, 1)
	require.Equal(t, 11000, be.WriteErrors[2].Code)
	require.Equal(t, []int64{1, 1, 1}, []int64{res.InsertedCount, res.UpsertedCount, res.DeletedCount})
	require.Equal(t, []bson.D{d("_id", int32(7), "x", int32(1))}, all(t, f.client.Database("db").Collection("b"), bson.D{}))
}

// The server fills in an empty timestamp at the top level of an inserted or replacing document,
// except in _id.
func TestAnEmptyTimestampIsFilledIn(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 8, 0) // for the bulkWrite among them
	ctx, c := t.Context(), f.coll()
	empty := bson.Timestamp{}
	doc := func(id any) bson.D { return d("_id", id, "at", empty, "deep", d("at", empty)) }
	_, err := c.InsertOne(ctx, doc(empty))
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, doc(1)[1:]) // the driver adds an _id
	require.NoError(t, err)
	_, err = c.ReplaceOne(ctx, d("_id", 2), doc(2), options.Replace().SetUpsert(true))
	require.NoError(t, err)
	_, err = f.client.BulkWrite(ctx, []driver.ClientBulkWrite{{Database: "db", Collection: c.Name(), Model: driver.NewClientInsertOneModel().SetDocument(doc(3))}})
	require.NoError(t, err)
	got := all(t, c, bson.D{})
	require.Len(t, got, 4)
	require.Equal(t, empty, got[0][0].Value, "an empty _id stays")
	for _, x := range got {
		require.Positive(t, x[1].Value.(bson.Timestamp).T)
		require.Equal(t, d("at", empty), x[2].Value)
	}
	_, err = c.UpdateOne(ctx, d("_id", 3), d("$set", d("at", empty)))
	require.NoError(t, err)
	require.Equal(t, empty, all(t, c, d("_id", 3))[0][1].Value, "an operator sets what it is given")
}

func TestFindAndModify(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertMany(ctx, []any{d("_id", 1, "n", 5), d("_id", 2, "n", 3)})
	require.NoError(t, err)
	var got bson.D
	require.NoError(t, c.FindOneAndUpdate(ctx, bson.D{}, d("$inc", d("n", 10)), options.FindOneAndUpdate().SetSort(d("n", 1)).SetReturnDocument(options.After)).Decode(&got))
	require.Equal(t, d("_id", int32(2), "n", int32(13)), got)
	require.NoError(t, c.FindOneAndDelete(ctx, d("n", d("$gt", 10)), options.FindOneAndDelete().SetProjection(d("_id", 0))).Decode(&got))
	require.Equal(t, d("n", int32(13)), got)
	require.ErrorIs(t, c.FindOneAndDelete(ctx, d("n", d("$gt", 10))).Err(), driver.ErrNoDocuments)
}

func TestCursorsPageAndPipelinesCompute(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	var docs []any
	for i := range 250 {
		docs = append(docs, d("_id", i, "k", i%3, "v", i))
	}
	_, err := c.InsertMany(ctx, docs)
	require.NoError(t, err)
	got := all(t, c, bson.D{}, options.Find().SetBatchSize(7))
	require.Len(t, got, 250)
	require.Equal(t, int32(249), got[249][0].Value)
	n, err := c.CountDocuments(ctx, d("k", 1))
	require.NoError(t, err)
	require.EqualValues(t, 83, n)

	cur, err := c.Aggregate(ctx, driver.Pipeline{
		d("$match", d("v", d("$gte", 240))), d("$group", d("_id", "$k", "sum", d("$sum", "$v"), "ids", d("$push", "$_id"))), d("$sort", d("_id", -1)),
		d("$set", d("big", d("$gt", bson.A{"$sum", 800}))), d("$project", d("ids", 0)),
	})
	require.NoError(t, err)
	var groups []bson.D
	require.NoError(t, cur.All(ctx, &groups))
	require.Equal(t, []bson.D{
		d("_id", int32(2), "sum", int32(242+245+248), "big", false),
		d("_id", int32(1), "sum", int32(241+244+247), "big", false),
		d("_id", int32(0), "sum", int32(240+243+246+249), "big", true),
	}, groups)
}

func TestSample(t *testing.T) {
	f := serve(t, mongo.Options{})
	c := f.client.Database("db").Collection("c")
	sample := func(spec any) (ids map[int32]bool, err error) {
		cursor, err := c.Aggregate(t.Context(), driver.Pipeline{d("$sample", spec), d("$project", d("_id", 1))})
		if err != nil {
			return nil, err
		}
		var docs []struct {
			ID int32 `bson:"_id"`
		}
		require.NoError(t, cursor.All(t.Context(), &docs))
		ids = map[int32]bool{}
		for _, doc := range docs {
			require.NotContains(t, ids, doc.ID, "a document is given once")
			ids[doc.ID] = true
		}
		return ids, nil
	}
	none, err := sample(d("size", 3))
	require.NoError(t, err)
	require.Empty(t, none)
	for i := range 40 {
		_, err := c.InsertOne(t.Context(), d("_id", i))
		require.NoError(t, err)
	}
	reached := map[int32]bool{}
	for range 200 { // each document is left out of all of them with a chance of 1 in 6·10⁶
		some, err := sample(d("size", 3))
		require.NoError(t, err)
		require.Len(t, some, 3)
		for id := range some {
			reached[id] = true
		}
	}
	require.Len(t, reached, 40)
	all, err := sample(d("size", 41))
	require.NoError(t, err)
	require.Len(t, all, 40)
	for code, spec := range map[int]any{28745: 3, 28746: d("size", "3"), 28747: d("size", 0), 28748: d("size", 3, "seed", 1), 28749: d()} {
		if code == 28747 && !f.since(t, 8, 0) {
			continue // a 6.0.5 answers with nothing
		}
		_, err := sample(spec)
		var refused driver.CommandError
		require.ErrorAs(t, err, &refused, "%v", spec)
		require.EqualValues(t, code, refused.Code)
	}
	_, err = c.Watch(t.Context(), driver.Pipeline{d("$sample", d("size", 3))})
	require.ErrorContains(t, err, "$sample is not permitted in a $changeStream pipeline")
}

func TestUnsupportedThingsAreNamed(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.embedded(t) // a server supports them
	db := f.client.Database("db")
	for want, cmd := range map[string]bson.D{
		"mapReduce":   d("mapReduce", "c"),
		"timeseries":  d("create", "x", "timeseries", d("timeField", "t")),
		"nosuchfield": d("find", "c", "nosuchfield", 1),
		"$densify":    d("aggregate", "c", "pipeline", bson.A{d("$densify", d("field", "x"))}, "cursor", d()),
		"$near":       d("find", "c", "filter", d("a", d("$near", 1))),
		"$function":   d("aggregate", "c", "pipeline", bson.A{d("$set", d("a", d("$function", 1)))}, "cursor", d()),
		"$redact":     d("aggregate", "c", "pipeline", bson.A{d("$changeStream", d()), d("$redact", "$$KEEP")}, "cursor", d()),
		"collation":   d("find", "c", "collation", d("locale", "de")),
		"hidden":      d("createIndexes", "c", "indexes", bson.A{d("key", d("a", 1), "name", "a_1", "hidden", true)}),
	} {
		require.ErrorContains(t, db.RunCommand(t.Context(), cmd).Err(), want)
	}
}
