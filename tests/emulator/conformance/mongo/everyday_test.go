package mongo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// refused requires an error of a server with this code.
func refused(t *testing.T, code int, err error) {
	t.Helper()
	var e driver.ServerError
	require.ErrorAs(t, err, &e)
	require.True(t, e.HasErrorCode(code), "want %d, got %v", code, err)
}

func aggregated(t *testing.T, c *driver.Collection, stages ...bson.D) []bson.D {
	t.Helper()
	cur, err := c.Aggregate(t.Context(), stages)
	require.NoError(t, err)
	out := []bson.D{}
	require.NoError(t, cur.All(t.Context(), &out))
	return out
}

func fill(t *testing.T, c *driver.Collection, docs ...any) {
	t.Helper()
	_, err := c.InsertMany(t.Context(), docs)
	require.NoError(t, err)
}

func TestViewsShowWhatTheirPipelineMakes(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	fill(t, f.coll(), d("_id", 1, "n", 1), d("_id", 2, "n", 2), d("_id", 3, "n", 3))
	require.NoError(t, db.CreateView(ctx, "odd", "c", driver.Pipeline{d("$match", d("n", d("$mod", bson.A{2, 1})))}))
	require.NoError(t, db.CreateView(ctx, "doubled", "odd", driver.Pipeline{d("$set", d("n", d("$multiply", bson.A{"$n", 2})))}))
	v := db.Collection("doubled")
	require.Equal(t, []bson.D{d("_id", int32(3), "n", int32(6)), d("_id", int32(1), "n", int32(2))}, all(t, v, d(), options.Find().SetSort(d("n", -1))))
	n, err := v.CountDocuments(ctx, d("n", d("$gt", 2)))
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	n, err = v.EstimatedDocumentCount(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, []bson.D{d("_id", nil, "sum", int32(8))}, aggregated(t, v, d("$group", d("_id", nil, "sum", d("$sum", "$n")))))
	require.Equal(t, []bson.D{d("o", bson.A{d("_id", int32(1), "n", int32(2))})}, aggregated(t, f.coll(), d("$match", d("_id", 2)),
		d("$lookup", d("from", "doubled", "localField", "n", "foreignField", "n", "as", "o")), d("$project", d("_id", 0, "o", 1))))

	_, err = v.InsertOne(ctx, d("_id", 9))
	refused(t, 166, err)
	_, err = v.DeleteMany(ctx, d())
	refused(t, 166, err)
	_, err = v.Watch(ctx, driver.Pipeline{})
	refused(t, 166, err)
	specs, err := db.ListCollectionSpecifications(ctx, d("name", "odd"))
	require.NoError(t, err)
	require.Equal(t, "view", specs[0].Type)
	require.NoError(t, v.Drop(ctx))
	require.Empty(t, all(t, v, d()))
}

// The commands that create, change and drop a view are events of streams with showExpandedEvents
// alone, and of no stream of a collection.
func TestAViewIsSeenByStreamsThatAskForMore(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 6, 0)
	ctx, db := t.Context(), f.client.Database("db")
	expanded := options.ChangeStream().SetShowExpandedEvents(true)
	more, err := db.Watch(ctx, driver.Pipeline{}, expanded)
	require.NoError(t, err)
	closing(t, more)
	plain, err := db.Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, plain)
	one, err := db.Collection("v").Watch(ctx, driver.Pipeline{}, expanded)
	require.NoError(t, err)
	closing(t, one)

	pipeline := bson.A{d("$match", d("n", 1))}
	require.NoError(t, db.CreateView(ctx, "v", "c", pipeline))
	f.command(t, "db", d("collMod", "v", "viewOn", "c2"))
	require.NoError(t, db.Collection("v").Drop(ctx))
	insert(t, db.Collection("v"), 1)

	for _, want := range []bson.D{
		d("operationType", "create", "operationDescription", d("viewOn", "c", "pipeline", bson.A{d("$match", d("n", int32(1)))})),
		d("operationType", "modify", "operationDescription", d("viewOn", "c2", "pipeline", bson.A{d("$match", d("n", int32(1)))})),
		d("operationType", "drop", "operationDescription", nil),
	} {
		event := next(t, more)
		require.Equal(t, d("db", "db", "coll", "v"), event["ns"])
		require.Equal(t, want, d("operationType", event["operationType"], "operationDescription", event["operationDescription"]))
		require.NotContains(t, event, "collectionUUID")
	}
	require.Equal(t, "insert", next(t, plain)["operationType"])
	require.Equal(t, "create", next(t, one)["operationType"], "of the collection that the insert made")
}

func TestACappedCollectionKeepsTheLast(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0) // before, what a capped collection drops is no event
	ctx, db := t.Context(), f.client.Database("db")
	require.NoError(t, db.CreateCollection(ctx, "c", options.CreateCollection().SetCapped(true).SetSizeInBytes(4096).SetMaxDocuments(2)))
	cs, err := f.coll().Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, cs)
	fill(t, f.coll(), d("_id", 1), d("_id", 2), d("_id", 3))
	require.Equal(t, []bson.D{d("_id", int32(2)), d("_id", int32(3))}, all(t, f.coll(), d()))
	require.Equal(t, []bson.D{d("_id", int32(3)), d("_id", int32(2))}, all(t, f.coll(), d(), options.Find().SetSort(d("$natural", -1))))
	for _, want := range []string{"insert", "insert", "insert", "delete"} {
		require.Equal(t, want, next(t, cs)["operationType"])
	}
	require.Equal(t, true, of(f.command(t, "db", d("collStats", "c")), "capped"))

	// A tailable cursor waits for what comes, and ends where it has fallen behind.
	tail, err := f.coll().Find(ctx, d(), options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(5*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tail.Close(context.WithoutCancel(ctx))) })
	for _, want := range []int32{2, 3, 4} {
		if want == 4 {
			fill(t, f.coll(), d("_id", 4))
		}
		require.True(t, tail.Next(ctx), tail.Err())
		require.Equal(t, want, tail.Current.Lookup("_id").Int32())
	}
	fill(t, f.coll(), d("_id", 5), d("_id", 6), d("_id", 7))
	require.False(t, tail.Next(ctx))
	refused(t, 136, tail.Err())
	refused(t, 72, db.CreateCollection(ctx, "x", options.CreateCollection().SetCapped(true)))
	_, err = db.Collection("plain").InsertOne(ctx, d())
	require.NoError(t, err)
	_, err = db.Collection("plain").Find(ctx, d(), options.Find().SetCursorType(options.Tailable))
	refused(t, 2, err)
}

func TestOutTakesTheTargetsPlace(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	fill(t, f.coll(), d("_id", 1, "n", 1), d("_id", 2, "n", 2))
	to := db.Collection("to")
	fill(t, to, d("_id", "old"))
	_, err := to.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("n", 1), Options: options.Index().SetUnique(true)})
	require.NoError(t, err)
	onName, err := to.Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, onName)
	onDatabase, err := db.Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, onDatabase)
	require.Empty(t, aggregated(t, f.coll(), d("$match", d("n", d("$gt", 0))), d("$out", "to")))
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(1)), d("_id", int32(2), "n", int32(2))}, all(t, to, d()))
	require.Equal(t, "rename", next(t, onName)["operationType"])
	require.Equal(t, "invalidate", next(t, onName)["operationType"])
	for range 2 {
		e := next(t, onDatabase)
		require.Equal(t, "insert", e["operationType"])
		require.Regexp(t, `^tmp\.agg_out\.`, of(e["ns"].(bson.D), "coll"))
	}
	indexes, err := to.Indexes().ListSpecifications(ctx)
	require.NoError(t, err)
	require.Equal(t, "n_1", indexes[1].Name)

	// What fails leaves the target, and nothing else.
	_, err = f.coll().Aggregate(ctx, driver.Pipeline{d("$set", d("n", 1)), d("$out", "to")})
	refused(t, 11000, err)
	require.Len(t, all(t, to, d()), 2)
	names, err := db.ListCollectionNames(ctx, d())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"c", "to"}, names) // in no order that is promised
	_, err = f.coll().Aggregate(ctx, driver.Pipeline{d("$out", "to"), d("$match", d())})
	refused(t, 40601, err)
}

func TestMergeMeetsWhatIsThere(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	fill(t, f.coll(), d("_id", 1, "n", 1), d("_id", 2, "n", 2))
	to := db.Collection("to")
	merge := func(spec ...any) ([]bson.D, error) {
		require.NoError(t, to.Drop(ctx))
		fill(t, to, d("_id", 1, "old", true)) //nolint:contextcheck // it is the test's
		_, err := f.coll().Aggregate(ctx, driver.Pipeline{d("$merge", append(d("into", "to"), d(spec...)...))})
		return all(t, to, d()), err //nolint:contextcheck // it is the test's
	}
	one, two := d("_id", int32(1), "n", int32(1)), d("_id", int32(2), "n", int32(2))
	old := d("_id", int32(1), "old", true)
	for _, c := range []struct {
		spec []any
		want []bson.D
		code int
	}{
		{nil, []bson.D{append(old, d("n", int32(1))...), two}, 0},
		{[]any{"whenMatched", "replace"}, []bson.D{one, two}, 0},
		{[]any{"whenMatched", "keepExisting"}, []bson.D{old, two}, 0},
		{[]any{"whenMatched", "fail"}, []bson.D{old, two}, 11000},
		{[]any{"whenNotMatched", "discard"}, []bson.D{append(old, d("n", int32(1))...)}, 0},
		{[]any{"whenNotMatched", "fail"}, []bson.D{append(old, d("n", int32(1))...)}, 13113},
		{[]any{"whenMatched", bson.A{d("$set", d("sum", d("$add", bson.A{"$$new.n", 10})))}}, []bson.D{append(old, d("sum", int32(11))...), two}, 0},
		{[]any{"let", d("by", "$n"), "whenMatched", bson.A{d("$set", d("by", "$$by"))}}, []bson.D{append(old, d("by", int32(1))...), two}, 0},
		{[]any{"on", "n"}, []bson.D{old}, 51183},
	} {
		got, err := merge(c.spec...)
		if c.code != 0 {
			refused(t, c.code, err)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, c.want, got, "%v", c.spec)
	}
}

func TestCollationIsTheCommandsAndTheIndexs(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	insensitive := &options.Collation{Locale: "en", Strength: 2}
	fill(t, c, d("_id", "A", "w", "Peter"), d("_id", "b", "w", "paul"))
	found := func(filter bson.D) []bson.D { return all(t, c, filter, options.Find().SetCollation(insensitive)) }
	require.Len(t, found(d("w", "PETER")), 1)
	require.Len(t, found(d("_id", "a")), 1)
	require.Len(t, found(d("_id", d("$gte", "B"))), 1)
	require.Empty(t, all(t, c, d("w", "PETER")))
	res, err := c.UpdateMany(ctx, d("w", "PAUL"), d("$set", d("hit", 1)), options.UpdateMany().SetCollation(insensitive))
	require.NoError(t, err)
	require.EqualValues(t, 1, res.MatchedCount)
	_, err = c.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("w", 1), Options: options.Index().SetUnique(true).SetCollation(insensitive)})
	require.NoError(t, err)
	require.Len(t, found(d("w", "PETER")), 1)
	require.Empty(t, all(t, c, d("w", "PETER")), "without the collation the index does not match")
	require.Len(t, all(t, c, d("w", "Peter")), 1)
	_, err = c.InsertOne(ctx, d("w", "PAUL"))
	refused(t, 11000, err)
	del, err := c.DeleteOne(ctx, d("w", "PAUL"), options.DeleteOne().SetCollation(insensitive))
	require.NoError(t, err)
	require.EqualValues(t, 1, del.DeletedCount)
	var values []string
	require.NoError(t, c.Distinct(ctx, "w", d(), options.Distinct().SetCollation(insensitive)).Decode(&values))
	require.Equal(t, []string{"Peter"}, values)
}

// The commands that tools send before they show anything are answered.
func TestAdministratorsAreAnswered(t *testing.T) {
	f := serve(t, mongo.Options{})
	fill(t, f.coll(), d("_id", 1))
	for _, c := range []struct {
		db    string
		cmd   bson.D
		field string
	}{
		{"db", d("dbStats", 1), "dataSize"},
		{"db", d("collStats", "c"), "nindexes"},
		{"admin", d("replSetGetStatus", 1), "members"},
		{"admin", d("replSetGetConfig", 1), "config"},
		{"db", d("connectionStatus", 1), "authInfo"},
		{"db", d("validate", "c"), "valid"},
		{"db", d("profile", -1), "was"},
		{"admin", d("top", 1), "totals"},
		{"admin", d("hostInfo", 1), "system"},
		{"admin", d("getLog", "startupWarnings"), "log"},
		{"admin", d("getCmdLineOpts", 1), "argv"},
		{"db", d("whatsmyuri", 1), "you"},
		{"db", d("listCommands", 1), "commands"},
		{"admin", d("currentOp", 1), "inprog"},
		{"db", d("dataSize", "db.c"), "numObjects"},
		{"admin", d("getDefaultRWConcern", 1), "defaultWriteConcern"},
		{"db", d("startSession", 1), "id"},
		{"db", d("killSessions", bson.A{}), "ok"},
	} {
		if c.field == "defaultWriteConcern" && !f.since(t, 5, 0) {
			c.field = "ok" // absent by default
		}
		require.NotNil(t, of(f.command(t, c.db, c.cmd), c.field), "%v", c.cmd)
	}
	stats := aggregated(t, f.coll(), d("$collStats", d("storageStats", d(), "count", d())))
	require.Equal(t, int32(1), of(stats[0], "count"))
	require.Equal(t, int32(1), of(of(stats[0], "storageStats").(bson.D), "nindexes"))
	names, err := f.client.Database("local").ListCollectionNames(t.Context(), d())
	require.NoError(t, err)
	require.Subset(t, names, []string{"oplog.rs", "system.replset"}) // a server has more
	require.Equal(t, "rs0", of(all(t, f.client.Database("local").Collection("system.replset"), d())[0], "_id"))
	n, err := f.client.Database("local").Collection("system.replset").CountDocuments(t.Context(), d())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	refused(t, 13, f.client.Database("db").RunCommand(t.Context(), d("replSetGetStatus", 1)).Err())
	err = f.client.Database("admin").RunCommand(t.Context(), d("nosuch", 1)).Err()
	refused(t, 59, err)
	require.ErrorContains(t, err, "no such command: 'nosuch'")
	if f.srv != nil {
		err = f.client.Database("admin").RunCommand(t.Context(), d("usersInfo", 1)).Err()
		refused(t, 59, err)
		require.ErrorContains(t, err, "the embedded MongoDB does not support the command usersInfo")
	}
}

// of reads a field; nil if it reads no field.
func of(doc bson.D, key string) any {
	for _, e := range doc {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// What $out and $merge write is a write: its concern counts, and there is no linearizable one of
// it.
func TestOutAndMergeAreWrites(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.command(t, "test", d("insert", "from", "documents", bson.A{d("_id", 1)}))
	for _, last := range []bson.D{d("$out", "to"), d("$merge", d("into", "to"))} {
		aggregate := func(more ...any) bson.D {
			return d(append([]any{"aggregate", "from", "pipeline", bson.A{last}, "cursor", bson.D{}}, more...)...)
		}
		var unmet driver.WriteException
		require.ErrorAs(t, f.client.Database("test").RunCommand(t.Context(), aggregate("writeConcern", d("w", 30))).Err(), &unmet, "%v", last)
		require.Equal(t, 100, unmet.WriteConcernError.Code)
		var to bson.D
		require.NoError(t, f.client.Database("test").Collection("to").FindOneAndDelete(t.Context(), bson.D{}).Decode(&to), "it was written all the same")
		err := f.client.Database("test").RunCommand(t.Context(), aggregate("readConcern", d("level", "linearizable"))).Err()
		require.EqualValues(t, 72, commandError(t, err).Code, "%v: %v", last, err)
	}
}

func TestListCollectionsReportsSizes(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0) // 4.4 returns a double
	f.command(t, "test", d("create", "small", "capped", true, "size", 4096.0, "max", int64(3)))
	f.command(t, "test", d("create", "large", "capped", true, "size", int64(1)<<32))
	for name, want := range map[string]bson.D{
		"small": d("capped", true, "size", int32(4096), "max", int32(3)),
		"large": d("capped", true, "size", int64(1)<<32),
	} {
		specs, err := f.client.Database("test").ListCollectionSpecifications(t.Context(), d("name", name))
		require.NoError(t, err)
		var got bson.D
		require.NoError(t, bson.Unmarshal(specs[0].Options, &got))
		require.Equal(t, want, got)
	}
}

// A collection reports its collation with every option, and a simple one not at all. The embedded
// server neither reads nor writes such a collection.
func TestACollectionReportsItsCollation(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, db := t.Context(), f.client.Database("db")
	require.NoError(t, db.CreateCollection(ctx, "collated", options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 2})))
	require.NoError(t, db.CreateCollection(ctx, "simple", options.CreateCollection().SetCollation(&options.Collation{Locale: "simple"})))
	options := func(name string) bson.Raw {
		listed, err := db.ListCollectionSpecifications(ctx, d("name", name))
		require.NoError(t, err)
		require.Len(t, listed, 1)
		return listed[0].Options
	}
	require.Equal(t, "en", options("collated").Lookup("collation", "locale").StringValue())
	require.EqualValues(t, 2, options("collated").Lookup("collation", "strength").AsInt64())
	require.Equal(t, "off", options("collated").Lookup("collation", "caseFirst").StringValue())
	require.Zero(t, options("simple").Lookup("collation").Type)
	f.embedded(t) // a server compares by it
	_, err := db.Collection("collated").InsertOne(ctx, d("_id", "a"))
	require.ErrorContains(t, err, "does not support a document of a collection with a collation")
	require.ErrorContains(t, db.Collection("collated").FindOne(ctx, d()).Err(), "does not support a document of a collection with a collation")
}
