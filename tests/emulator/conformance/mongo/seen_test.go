package mongo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/sluice-cdc/sluice/tests/emulator/conformance/internal/mongod"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// What a real server (4.4.1, and a build on the way to 5.0) was seen to answer, and this one once
// did not. Each of these is one such difference.

// describe gives the event of an update.
func describe(t *testing.T, c *driver.Collection, before bson.D, update any, opts ...options.Lister[options.UpdateOneOptions]) (operation string, updated bson.D) {
	t.Helper()
	cs, err := c.Watch(t.Context(), driver.Pipeline{})
	require.NoError(t, err)
	defer closing(t, cs)
	_, err = c.DeleteMany(t.Context(), d())
	require.NoError(t, err)
	fill(t, c, before)
	_, err = c.UpdateOne(t.Context(), d(), update, opts...)
	require.NoError(t, err)
	for {
		switch e := next(t, cs); e["operationType"] {
		case "insert", "delete":
		case "update":
			return "update", of(e["updateDescription"].(bson.D), "updatedFields").(bson.D)
		default:
			return e["operationType"].(string), nil
		}
	}
}

func TestSeenDescriptionsOfUpdates(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0) // 4.4 sorts the fields
	c := f.coll()
	ks := bson.A{d("k", 1), d("k", 2), d("k", 3)}
	each := func(k int32) bson.D { return d("k", k) }
	_, got := describe(t, c, d("_id", 1, "a", ks), d("$set", d("a.$[].k", 9)))
	require.Equal(t, d("a", bson.A{each(9), each(9), each(9)}), got, "several elements: the whole array")
	_, got = describe(t, c, d("_id", 1, "a", ks), d("$set", d("a.$[x].k", 9)), options.UpdateOne().SetArrayFilters([]any{d("x.k", 2)}))
	require.Equal(t, d("a.1.k", int32(9)), got, "one element: it alone")
	_, got = describe(t, c, d("_id", 1, "arr", bson.A{1}), d("$addToSet", d("arr", 2)))
	require.Equal(t, d("arr", bson.A{int32(1), int32(2)}), got)
	_, got = describe(t, c, d("_id", 1, "arr", bson.A{1, 2}), d("$set", d("arr.4", 5)))
	require.Equal(t, d("arr.4", int32(5)), got, "beyond the end")
	_, got = describe(t, c, d("_id", 1, "m", 1, "z", 1), d("$set", d("a", 2, "m", 2, "z", 2, "b", 2)))
	require.Equal(t, d("m", int32(2), "z", int32(2), "a", int32(2), "b", int32(2)), got, "what was there first, then what is new")
	kind, _ := describe(t, c, d("_id", 1, "a", bson.A{1, 2, 3}), bson.A{d("$set", d("a", bson.A{1}))})
	require.Equal(t, "replace", kind, "the difference would be larger than the document")
	kind, _ = describe(t, c, d("_id", 1, "a", strings.Repeat("x", 100), "b", bson.A{1, 2, 3}), bson.A{d("$set", d("b", bson.A{1}))})
	require.Equal(t, "update", kind)
}

func TestSeenDescriptionsOfUpdatesBefore50(t *testing.T) {
	f := like(t, [3]int32{4, 4, 29})
	c := f.coll()
	_, got := describe(t, c, d("_id", 1, "a", bson.A{d("k", 1), d("k", 2)}), d("$set", d("a.$[].k", 9)))
	require.Equal(t, d("a", bson.A{d("k", int32(9)), d("k", int32(9))}), got, "several elements: the whole array")
	_, got = describe(t, c, d("_id", 1), d("$set", d("10", 1, "9", 2, "a", 3)))
	require.Equal(t, d("10", int32(1), "9", int32(2), "a", int32(3)), got, "numbers sort as texts")
	refused(t, 9, f.client.Database("db").RunCommand(t.Context(), d("aggregate", "c", "pipeline", bson.A{}, "cursor", d(), "nosuch", 1)).Err())
	refused(t, 15956, f.client.Database("db").RunCommand(t.Context(), d("aggregate", "c", "pipeline", bson.A{d("$skip", -1)}, "cursor", d())).Err())
}

func TestSeenAReplacementByTheSame(t *testing.T) {
	f := serve(t, mongo.Options{})
	c := f.coll()
	fill(t, c, d("_id", 1, "n", 1))
	cs, err := c.Watch(t.Context(), driver.Pipeline{})
	require.NoError(t, err)
	closing(t, cs)
	res, err := c.ReplaceOne(t.Context(), d("_id", 1), d("n", 1))
	require.NoError(t, err)
	require.EqualValues(t, 1, res.ModifiedCount, "without its _id it is another document")
	require.Equal(t, "replace", next(t, cs)["operationType"])
	res, err = c.ReplaceOne(t.Context(), d("_id", 1), d("_id", 1, "n", 1))
	require.NoError(t, err)
	require.Zero(t, res.ModifiedCount)
}

func TestSeenATransactionThatMakesACollectionBlocksNoClient(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	s, err := f.client.StartSession()
	require.NoError(t, err)
	defer s.EndSession(ctx)
	require.NoError(t, s.StartTransaction())
	in := driver.NewSessionContext(ctx, s)
	_, err = c.InsertOne(in, d("_id", 1))
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, d("_id", 2))
	require.NoError(t, err, "at once")
	if f.srv != nil { // a real one waits with a new index until the transaction has ended
		_, err = c.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("n", 1)})
		require.NoError(t, err)
	}
	err = s.CommitTransaction(ctx)
	refused(t, 112, err)
	require.True(t, labelled(err, "TransientTransactionError"))
	require.Equal(t, []bson.D{d("_id", int32(2))}, all(t, c, d()))

	// An existing index is found, even if another client is writing to the collection.
	_, err = c.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("n", 1)})
	require.NoError(t, err)
	require.NoError(t, s.StartTransaction())
	_, err = c.InsertOne(in, d("_id", 3))
	require.NoError(t, err)
	_, err = c.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("n", 1)})
	require.NoError(t, err)
	require.NoError(t, s.AbortTransaction(ctx))
}

func TestSeenASnapshotKnowsNoCollectionMadeAfterIt(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	fill(t, f.coll(), d("_id", 1))
	s, err := f.client.StartSession()
	require.NoError(t, err)
	defer s.EndSession(ctx)
	in := driver.NewSessionContext(ctx, s)
	for _, touch := range []func() error{
		func() error { _, err := db.Collection("new").InsertOne(in, d("_id", 2)); return err },
		func() error { return db.Collection("new").FindOne(in, d()).Err() },
	} {
		require.NoError(t, db.Collection("new").Drop(ctx))
		require.NoError(t, s.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot())))
		require.NoError(t, f.coll().FindOne(in, d()).Err())
		fill(t, db.Collection("new"), d("_id", 1))
		err = touch()
		refused(t, 246, err)
		require.True(t, labelled(err, "TransientTransactionError"))
		require.NoError(t, s.AbortTransaction(ctx))
	}
}

func TestSeenWhatAnUpsertCopies(t *testing.T) {
	c := serve(t, mongo.Options{}).coll()
	upsert := func(filter bson.D) (bson.D, error) {
		_, err := c.DeleteMany(t.Context(), d())
		require.NoError(t, err)
		_, err = c.UpdateOne(t.Context(), filter, d("$set", d("n", 1)), options.UpdateOne().SetUpsert(true))
		if err != nil {
			return nil, err
		}
		return all(t, c, d())[0], nil
	}
	for _, filter := range []bson.D{d("_id", 7, "$or", bson.A{d("x", 1)}), d("_id", 7, "x", d("$all", bson.A{1})), d("_id", 7, "$and", bson.A{d("x", d("$in", bson.A{1}))})} {
		got, err := upsert(filter)
		require.NoError(t, err)
		require.Equal(t, d("_id", int32(7), "x", int32(1), "n", int32(1)), got, "%v", filter)
	}
	for _, filter := range []bson.D{d("x", d(), "x.x", 1), d("x", d("x", 1), "x.y", 1), d("x", d("$all", bson.A{1, 2}))} {
		_, err := upsert(filter)
		refused(t, 54, err)
	}
	_, err := c.ReplaceOne(t.Context(), d("_id.x", 1, "_id.y", 2), d("n", 1), options.Replace().SetUpsert(true))
	refused(t, 111, err)
}

func TestSeenWhatIsRefusedBeforeADocumentIsMet(t *testing.T) {
	c := serve(t, mongo.Options{}).coll()
	one := func(update any, filters ...any) error {
		_, err := c.UpdateOne(t.Context(), d("none", 1), update, options.UpdateOne().SetArrayFilters(filters))
		return err
	}
	for _, r := range []struct {
		update any
		code   int
	}{
		{d("$inc", d("n", "x")), 14},
		{d("$pop", d("a", 3)), 9},
		{d("$pullAll", d("a", 1)), 2},
		{d("$push", d("a", d("$each", 1))), 2},
		{d("$push", d("a", d("$each", bson.A{}, "$sort", d()))), 2},
		{d("$currentDate", d("a", 1)), 2},
		{d("$bit", d("a", 1)), 2},
	} {
		refused(t, r.code, one(r.update))
	}
	refused(t, 9, one(d("$set", d("a.$[i]", 1)), d("i", 0, "j", 0)))
	_, err := c.DeleteMany(t.Context(), d("x", bson.Undefined{}))
	refused(t, 2, err)

	fill(t, c, d("_id", 1, "s", "text", "a", bson.A{}))
	_, err = c.UpdateOne(t.Context(), d(), d("$pop", d("s", 1)))
	refused(t, 14, err)
	_, err = c.UpdateOne(t.Context(), d(), d("$pop", d("s.x", 1)))
	refused(t, 28, err)
	_, err = c.UpdateOne(t.Context(), d(), d("$set", d("a.1500001", 1)))
	refused(t, 34, err)
	_, err = c.UpdateOne(t.Context(), d(), d("$set", d("a.1500000", 1)))
	require.NoError(t, err, "as many are filled in")
}

func TestSeenThePositionOfAMatch(t *testing.T) {
	c := serve(t, mongo.Options{}).coll()
	for _, r := range []struct{ doc, filter, want bson.D }{
		{d("_id", 1, "a", bson.A{1, 2, 3}), d("a", d("$gt", 1)), d("_id", int32(1), "a", bson.A{int32(1), int32(9), int32(3)})},
		{d("_id", 1, "a", bson.A{1, 2, 3}, "b", bson.A{5, 6, 7}), d("a", 1, "b", 7), d("_id", int32(1), "a", bson.A{int32(1), int32(2), int32(9)}, "b", bson.A{int32(5), int32(6), int32(7)})},
		{d("_id", 1, "a", bson.A{1, 2, 3}), d("a", 1, "$and", bson.A{d("a", 3)}), d("_id", int32(1), "a", bson.A{int32(1), int32(2), int32(9)})},
	} {
		_, err := c.DeleteMany(t.Context(), d())
		require.NoError(t, err)
		fill(t, c, r.doc)
		_, err = c.UpdateOne(t.Context(), r.filter, d("$set", d("a.$", 9)))
		require.NoError(t, err)
		require.Equal(t, []bson.D{r.want}, all(t, c, d()))
	}
}

func TestSeenNamesAndDepths(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	long := 73
	if !f.since(t, 5, 0) {
		long = 4862100
	}
	for name, code := range map[string]int{"a$b": 73, "system.x": 73, ".a": 73, strings.Repeat("n", 300): long} {
		_, err := db.Collection(name).InsertOne(ctx, d("_id", 1))
		var command driver.CommandError
		require.ErrorAs(t, err, &command, "the command fails, not a write")
		require.EqualValues(t, code, command.Code)
	}
	nested := func(n int) bson.D {
		v := d("x", 1)
		for range n {
			v = d("x", v)
		}
		return v
	}
	_, err := f.coll().InsertOne(ctx, nested(150))
	require.NoError(t, err)
	_, err = f.coll().InsertOne(ctx, nested(182))
	var write driver.WriteException
	require.ErrorAs(t, err, &write)
	require.Equal(t, 15, write.WriteErrors[0].Code)
	require.Equal(t, "cannot insert document because it exceeds 180 levels of nesting", write.WriteErrors[0].Message)
}

func TestSeenChangesWithoutAStream(t *testing.T) {
	f := serve(t, mongo.Options{})
	for _, c := range []string{"admin.c", "config.c", "local.c", "db.system.users"} {
		name, coll, _ := strings.Cut(c, ".")
		_, err := f.client.Database(name).Collection(coll).Watch(t.Context(), driver.Pipeline{})
		refused(t, 73, err)
	}
	for _, name := range []string{"config", "local", "admin"} {
		_, err := f.client.Database(name).Watch(t.Context(), driver.Pipeline{})
		refused(t, 73, err)
	}
	_, err := f.client.Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(d("_data", "826000")))
	refused(t, 15, err)
}

func TestSeenAMissingImageOfWhatIsNotWanted(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 6, 0)
	ctx, db := t.Context(), f.client.Database("db")
	require.NoError(t, db.CreateCollection(ctx, "c", options.CreateCollection().SetChangeStreamPreAndPostImages(d("enabled", true))))
	fill(t, f.coll(), d("_id", 1))
	fill(t, db.Collection("without"), d("_id", 1))
	cs, err := db.Watch(ctx, driver.Pipeline{d("$match", d("ns.coll", "c"))}, options.ChangeStream().SetFullDocumentBeforeChange(options.Required))
	require.NoError(t, err)
	closing(t, cs)
	for _, c := range []*driver.Collection{db.Collection("without"), f.coll()} {
		_, err = c.DeleteOne(ctx, d())
		require.NoError(t, err)
	}
	require.Equal(t, d("_id", int32(1)), next(t, cs)["fullDocumentBeforeChange"])
	_, err = db.Collection("without").InsertOne(ctx, d("_id", 1))
	require.NoError(t, err)
	unfiltered, err := db.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetFullDocumentBeforeChange(options.Required))
	require.NoError(t, err)
	closing(t, unfiltered)
	_, err = db.Collection("without").DeleteOne(ctx, d())
	require.NoError(t, err)
	require.False(t, unfiltered.Next(ctx))
	refused(t, 47, unfiltered.Err())
}

// 6.0.27 finds a document in another collection of the same name; 4.4.2, 5.0.4 and 6.0.5 did
// not.
func TestSeenALookupAfterDropAndCreate(t *testing.T) {
	t.Run("before 6.0.27", func(t *testing.T) { require.Nil(t, lookedUpAfterDropAndCreate(t, false)) })
	t.Run("6.0.27", func(t *testing.T) {
		require.Equal(t, d("_id", int32(1), "other", true), lookedUpAfterDropAndCreate(t, true))
	})
}

// lookedUpAfterDropAndCreate returns the document of an update whose collection has been dropped
// and created again.
func lookedUpAfterDropAndCreate(t *testing.T, later bool) any {
	t.Helper()
	var o mongo.Options
	if !later && mongod.URI() == "" {
		o.Version = [3]int32{6, 0, 26}
	}
	f := serve(t, o)
	if f.srv == nil && (f.since(t, 6, 0, 27) != later || f.since(t, 7, 0)) {
		t.Skip("the server is of another version")
	}
	ctx, c := t.Context(), f.coll()
	fill(t, c, d("_id", 1))
	cs, err := f.client.Database("db").Watch(ctx, driver.Pipeline{d("$match", d("operationType", "update"))}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(t, err)
	closing(t, cs)
	_, err = c.UpdateOne(ctx, d(), d("$set", d("n", 1)))
	require.NoError(t, err)
	require.NoError(t, c.Drop(ctx))
	fill(t, c, d("_id", 1, "other", true))
	e := next(t, cs)
	require.Contains(t, e, "fullDocument")
	return e["fullDocument"]
}

func TestSeenACursorAndItsCollection(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	for name, end := range map[string]func(c *driver.Collection) error{
		"drop": func(c *driver.Collection) error { return c.Drop(ctx) },
		"rename": func(c *driver.Collection) error {
			return f.client.Database("admin").RunCommand(ctx, d("renameCollection", "db."+c.Name(), "to", "db.elsewhere")).Err()
		},
		"database": func(*driver.Collection) error { return db.Drop(ctx) },
	} {
		c := db.Collection("c_" + name)
		fill(t, c, d("_id", 1), d("_id", 2), d("_id", 3))
		cur, err := c.Find(ctx, d(), options.Find().SetBatchSize(2))
		require.NoError(t, err)
		require.True(t, cur.Next(ctx))
		require.True(t, cur.Next(ctx))
		require.NoError(t, end(c))
		require.False(t, cur.Next(ctx), name)
		refused(t, 175, cur.Err())
	}
	if f.srv == nil {
		return // the driver adds a session of its own, and a server refuses two
	}
	fill(t, f.coll(), d("_id", 1), d("_id", 2), d("_id", 3))
	session := func(n byte) bson.D {
		return d("id", bson.Binary{Subtype: 4, Data: []byte(strings.Repeat(string(rune(n)), 16))})
	}
	opened := f.command(t, "db", d("find", "c", "batchSize", 1, "lsid", session(1)))
	id := of(of(opened, "cursor").(bson.D), "id")
	refused(t, 50738, db.RunCommand(ctx, d("getMore", id, "collection", "c", "lsid", session(2))).Err())
}

func TestSeenOptionsForbiddenInTransactions(t *testing.T) {
	f := serve(t, mongo.Options{})
	if f.srv == nil {
		t.Skip("the driver adds a session of its own, and a server refuses two")
	}
	fill(t, f.coll(), d("_id", 1))
	number := int64(0)
	lsid := d("id", bson.Binary{Subtype: 4, Data: []byte(strings.Repeat("s", 16))})
	first := func(db, name string, value any, more ...any) error {
		number++
		return f.client.Database(db).RunCommand(t.Context(), append(d(name, value), append(d(more...), d("lsid", lsid, "txnNumber", number, "autocommit", false, "startTransaction", true)...)...)).Err()
	}
	then := func(name string, value any, more ...any) error {
		return f.client.Database("db").RunCommand(t.Context(), append(d(name, value), append(d(more...), d("lsid", lsid, "txnNumber", number, "autocommit", false)...)...)).Err()
	}
	begin := func() { require.NoError(t, first("db", "find", "c")) }
	begin()
	refused(t, 72, then("find", "c", "readConcern", d("level", "snapshot")))
	begin()
	refused(t, 72, then("insert", "c", "documents", bson.A{d()}, "writeConcern", d("w", 1)))
	for _, level := range []string{"available", "linearizable"} {
		refused(t, 72, first("db", "find", "c", "readConcern", d("level", level)))
	}
	for _, db := range []string{"admin", "config", "local"} {
		refused(t, 263, first(db, "find", "c"))
	}
	refused(t, 263, first("db", "killCursors", "c", "cursors", bson.A{int64(1)}))
	begin()
	number--
	refused(t, 117, first("db", "find", "c"))
	refused(t, 72, f.client.Database("db").RunCommand(t.Context(), d("find", "c", "lsid", lsid, "txnNumber", number+1, "startTransaction", true)).Err())
	begin()
	refused(t, 217, f.client.Database("db").RunCommand(t.Context(), d("insert", "c", "documents", bson.A{d("_id", 5)}, "lsid", lsid, "txnNumber", number)).Err())
	refused(t, 20, f.client.Database("local").RunCommand(t.Context(), d("insert", "c", "documents", bson.A{d("_id", 5)}, "lsid", lsid, "txnNumber", number+1)).Err())
}

// A linearizable read is confirmed by an entry of its own: its time is later than every write
// before it, also of a collection that does not exist.
func TestSeenTheTimeOfALinearizableRead(t *testing.T) {
	f := serve(t, mongo.Options{})
	for _, name := range []string{"c", "none"} {
		written := f.command(t, "db", d("insert", "c", "documents", bson.A{d()}))
		read := f.command(t, "db", d("find", name, "readConcern", d("level", "linearizable")))
		before, after := field(t, written, "operationTime").(bson.Timestamp), field(t, read, "operationTime").(bson.Timestamp)
		require.True(t, after.After(before), "%v is not after %v", after, before)
	}
}

func TestSeenOptionsOfWrites(t *testing.T) {
	f := serve(t, mongo.Options{})
	db := f.client.Database("db")
	fill(t, f.coll(), d("_id", 1))
	for _, cmd := range []bson.D{
		d("findAndModify", "c", "remove", true, "upsert", true), d("findAndModify", "c", "remove", true, "new", true),
	} {
		refused(t, 9, db.RunCommand(t.Context(), cmd).Err())
	}
	if f.since(t, 5, 0) {
		refused(t, 14, db.RunCommand(t.Context(), d("findAndModify", "c", "remove", true, "sort", 1)).Err())
	}
	err := db.RunCommand(t.Context(), d("update", "c", "updates", bson.A{d("q", d(), "u", d("$set", d("n", 1)), "c", d("x", 1))})).Err()
	refused(t, 51198, err)
	f.command(t, "db", d("update", "c", "updates", bson.A{d("q", d(), "u", bson.A{d("$set", d("n", "$$x"))}, "c", d("x", 7))}))
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(7))}, all(t, f.coll(), d()))
	large := strings.Repeat("x", 9<<20)
	_, err = f.coll().UpdateOne(t.Context(), d(), d("$set", d("a", large)))
	require.NoError(t, err)
	_, err = f.coll().UpdateOne(t.Context(), d(), d("$set", d("b", large)))
	if f.srv == nil {
		refused(t, 10334, err)
	} else {
		refused(t, 17419, err)
	}
	_, err = f.coll().UpdateOne(t.Context(), d("_id", 2, "a", large), d("$set", d("b", large)), options.UpdateOne().SetUpsert(true))
	require.Error(t, err)
	require.Equal(t, []bson.D{d("_id", int32(1))}, all(t, f.coll(), d(), options.Find().SetProjection(d("_id", 1))))
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(7))}, all(t, f.coll(), d(), options.Find().SetProjection(d("_id", 1, "n", 1))))
}

// The features, the refusals and the change events of each version.
func TestVersions(t *testing.T) {
	names := []string{"4.4", "5.0", "6.0", "7.0", "8.0"}
	for n, name := range names {
		t.Run(name, func(t *testing.T) {
			version, err := mongo.ParseVersion(name)
			require.NoError(t, err)
			f := like(t, version)
			since := func(from string) bool { return n >= slices.Index(names, from) }
			answers := func(from string, err error) {
				t.Helper()
				if since(from) {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
				}
			}
			ctx, db := t.Context(), f.client.Database("db")
			require.Equal(t, []int32{9, 13, 17, 21, 25}[n], of(f.command(t, "admin", d("hello", 1)), "maxWireVersion"))
			if f.srv != nil {
				require.Equal(t, fmt.Sprintf("%d.%d.%d", version[0], version[1], version[2]), of(f.command(t, "admin", d("buildInfo", 1)), "version"))
			}
			answers("6.0", db.RunCommand(ctx, d("create", "images", "changeStreamPreAndPostImages", d("enabled", true))).Err())
			answers("8.0", db.Client().Database("admin").RunCommand(ctx, d("bulkWrite", 1, "ops", bson.A{d("insert", 0, "document", d("_id", 1))}, "nsInfo", bson.A{d("ns", "db.b")})).Err())
			answers("5.0", db.RunCommand(ctx, d("find", "c", "readConcern", d("level", "snapshot"))).Err())
			answers("5.0", db.RunCommand(ctx, d("find", "c", "let", d("x", 1))).Err())
			answers("5.0", db.RunCommand(ctx, d("aggregate", "c", "pipeline", bson.A{d("$set", d("x", d("$dateTrunc", d("date", "$$NOW", "unit", "day"))))}, "cursor", d())).Err())
			_, err = f.client.Database("db").Collection("dollars").InsertOne(ctx, d("_id", 1, "$x", 1))
			answers("5.0", err)
			_, err = f.coll().Watch(ctx, driver.Pipeline{d("$changeStreamSplitLargeEvent", d())})
			answers("6.0", err)
			_, err = f.coll().Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetShowExpandedEvents(true))
			answers("6.0", err)

			cs, err := f.coll().Watch(ctx, driver.Pipeline{})
			require.NoError(t, err)
			closing(t, cs)
			fill(t, f.coll(), d("_id", 1, "n", 1, "long", strings.Repeat("x", 99)))
			for _, update := range []any{d("$set", d("deep.x", 1, "a", 1)), bson.A{d("$set", d("n", 2))}} {
				_, err = f.coll().UpdateOne(ctx, d(), update)
				require.NoError(t, err)
			}
			insert := next(t, cs)
			require.Equal(t, since("6.0"), insert["wallTime"] != nil)
			token := of(insert["_id"].(bson.D), "_data").(string)
			require.Equal(t, map[bool]string{true: "2B04", false: "2B02"}[since("7.0")], token[18:22])
			description := next(t, cs)["updateDescription"].(bson.D)
			require.Equal(t, since("5.0"), of(description, "truncatedArrays") != nil)
			if since("5.0") {
				require.Equal(t, d("a", int32(1), "deep", d("x", int32(1))), of(description, "updatedFields"))
				require.Equal(t, "update", next(t, cs)["operationType"])
			} else {
				require.Equal(t, d("a", int32(1), "deep.x", int32(1)), of(description, "updatedFields"))
				require.Equal(t, "replace", next(t, cs)["operationType"], "what a pipeline makes")
			}
		})
	}
}

func labelled(err error, label string) bool {
	var e driver.LabeledError
	return errors.As(err, &e) && e.HasErrorLabel(label)
}
