package mongo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// A read that takes longer than its maxTimeMS ends with the error of that, whether it joins or
// scans.
func TestMaxTimeEndsAReadThatTakesLonger(t *testing.T) {
	f := serve(t, mongo.Options{})
	var docs []any
	for i := range 5000 {
		docs = append(docs, d("_id", i, "text", strings.Repeat("a", 500)+"b"))
	}
	fill(t, f.coll(), docs...)
	slow := d("$regexMatch", d("input", "$text", "regex", "(a+)+c"))
	for name, c := range map[string]bson.D{
		"join": d("aggregate", "c", "cursor", d(), "maxTimeMS", 20, "pipeline", bson.A{
			d("$lookup", d("from", "c", "as", "all", "let", d("id", "$_id"), "pipeline", bson.A{d("$match", d("$expr", d("$gt", bson.A{d("$add", bson.A{"$$id", "$_id"}), -1}))), d("$count", "n")})),
			d("$count", "n"),
		}),
		"find": d("find", "c", "maxTimeMS", 1, "filter", d("$expr", slow)),
	} {
		var e driver.CommandError
		require.ErrorAs(t, f.connectWithout(t).Database("db").RunCommand(t.Context(), c).Err(), &e, name)
		require.EqualValues(t, 50, e.Code, "%s: %v", name, e)
	}
}

// The time limit of the command that opened a stream does not apply to its getMores.
func TestMaxTimeOfAStreamIsThatOfItsOpening(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.command(t, "db", d("create", "c"))
	stream, err := f.client.Database("db").Collection("c").Watch(t.Context(), driver.Pipeline{d("$match", d("fullDocument.n", d("$gt", 1)))})
	require.NoError(t, err)
	closing(t, stream)
	fill(t, f.coll(), d("_id", 1, "n", 1), d("_id", 2, "n", 2))
	require.Equal(t, d("_id", int32(2)), next(t, stream)["documentKey"])
}

// One malformed operation fails a bulkWrite before anything of it is done.
func TestAMalformedOperationFailsTheBulkWrite(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 8, 0)
	good := d("insert", 0, "document", d("_id", 1))
	for name, c := range map[string]struct {
		op   bson.D
		code int
	}{
		"a namespace that is not there": {d("insert", 1, "document", d("_id", 2)), 2},
		"a field that is not known":     {d("delete", 0, "filter", d(), "nosuch", 1), 40415},
		"a multi that is no boolean":    {d("delete", 0, "filter", d(), "multi", "yes"), 14},
		"a stage that is not known":     {d("update", 0, "filter", d(), "updateMods", bson.A{d("$nosuch", 1)}), 40324},
	} {
		err := f.client.Database("admin").RunCommand(t.Context(), d("bulkWrite", 1, "ops", bson.A{good, c.op}, "nsInfo", bson.A{d("ns", "db.c")})).Err()
		var e driver.CommandError
		require.ErrorAs(t, err, &e, name)
		require.EqualValues(t, c.code, e.Code, name)
		require.Empty(t, all(t, f.coll(), d()), name)
	}
}

// Before 5.0 no name that begins with $ is stored, at any depth.
func TestDollarsAreNotStoredBefore50(t *testing.T) {
	f := like(t, [3]int32{4, 4, 29})
	fill(t, f.coll(), d("_id", 1))
	for _, u := range []bson.D{d("a", d("$a", 1)), d("$set", d("a", d("$a", 1)))} {
		err := f.client.Database("db").RunCommand(t.Context(), d("update", "c", "updates", bson.A{d("q", d("_id", 1), "u", u)})).Err()
		refused(t, 52, err)
	}
}

// A key that is a UUID is shown as one where it is there already.
func TestADuplicateUUIDIsShownAsOne(t *testing.T) {
	f := serve(t, mongo.Options{})
	id := bson.Binary{Subtype: bson.TypeBinaryUUID, Data: []byte("0123456789abcdef")}
	fill(t, f.coll(), d("_id", id))
	_, err := f.coll().InsertOne(t.Context(), d("_id", id))
	require.ErrorContains(t, err, `dup key: { _id: UUID("30313233-3435-3637-3839-616263646566") }`)
}

func TestNamesOfDatabasesHaveNoSize(t *testing.T) {
	f := serve(t, mongo.Options{})
	require.NotNil(t, of(f.command(t, "admin", d("listDatabases", 1)), "totalSize"))
	require.Nil(t, of(f.command(t, "admin", d("listDatabases", 1, "nameOnly", true)), "totalSize"))
}

// A fail point for an application strikes the first hello of its connections, by either name of the
// older command.
func TestAFailPointStrikesTheFirstHelloOfAnApplication(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.failCommand(t, "alwaysOn", d("failCommands", bson.A{"isMaster", "hello"}, "appName", "mine", "closeConnection", true))
	defer f.command(t, "admin", d("configureFailPoint", "failCommand", "mode", "off"))
	for app, answered := range map[string]bool{"mine": false, "other": true} {
		c := f.connect(t, func(o *options.ClientOptions) {
			o.SetAppName(app).SetServerSelectionTimeout(time.Second)
			o.Timeout = nil
		})
		err := c.Ping(t.Context(), nil)
		require.Equal(t, answered, err == nil, "%s: %v", app, err)
	}
}

// The labels in the error of a write concern that a fail point makes up stay in it.
func TestLabelsOfAWriteConcernErrorStayInIt(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.failCommand(t, d("times", 1), d("failCommands", bson.A{"insert"}, "writeConcernError", d("code", 64, "errorLabels", bson.A{"inside"})))
	err := f.client.Database("db").RunCommand(t.Context(), d("insert", "c", "documents", bson.A{d("_id", 1)})).Err()
	var e driver.WriteException
	require.ErrorAs(t, err, &e)
	require.Equal(t, 64, e.WriteConcernError.Code)
	require.Nil(t, e.Raw.Lookup("errorLabels").Value)
	label, err := e.Raw.LookupErr("writeConcernError", "errorLabels", "0")
	require.NoError(t, err)
	require.Equal(t, "inside", label.StringValue())
}
