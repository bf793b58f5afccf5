package mongo_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func uniqueK() driver.IndexModel {
	return driver.IndexModel{Keys: d("k", 1), Options: options.Index().SetUnique(true)}
}

// A collection and its index, made in a transaction, are there with its commit
// and not before; an abort leaves nothing.
func TestCreateInTransaction(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 6, 0)
	db := f.client.Database("db")
	names := func() []string {
		list, err := db.ListCollectionNames(t.Context(), d())
		require.NoError(t, err)
		return list
	}
	cs, err := db.Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetShowExpandedEvents(true))
	require.NoError(t, err)
	closing(t, cs)
	require.NoError(t, f.client.UseSession(t.Context(), func(ctx context.Context) error {
		s := driver.SessionFromContext(ctx)
		for _, commit := range []bool{false, true} {
			require.NoError(t, s.StartTransaction())
			require.NoError(t, db.CreateCollection(ctx, "made"))
			_, err := db.Collection("made").Indexes().CreateOne(ctx, uniqueK())
			require.NoError(t, err)
			_, err = db.Collection("made").InsertOne(ctx, d("_id", 1, "k", 1))
			require.NoError(t, err)
			require.Empty(t, names())
			if commit {
				require.NoError(t, s.CommitTransaction(ctx))
			} else {
				require.NoError(t, s.AbortTransaction(ctx))
				require.Empty(t, names())
			}
		}
		require.NoError(t, s.StartTransaction())
		_, err := db.Collection("made").Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("z", 1)})
		require.Equal(t, int32(263), commandError(t, err).Code, "an index on a collection of before the transaction")
		return nil
	}))
	require.Equal(t, []string{"made"}, names())
	for _, want := range []string{"create", "createIndexes", "insert"} {
		require.Equal(t, want, next(t, cs)["operationType"])
	}
	_, err = db.Collection("made").InsertOne(t.Context(), d("_id", 2, "k", 1))
	require.True(t, driver.IsDuplicateKeyError(err), "%v", err)
}

func TestHintNamesAnIndex(t *testing.T) {
	f := serve(t, mongo.Options{})
	c := f.coll()
	require.ErrorIs(t, c.FindOne(t.Context(), d(), options.FindOne().SetHint("none")).Err(), driver.ErrNoDocuments, "no collection: nothing to plan")
	_, err := c.Indexes().CreateOne(t.Context(), uniqueK())
	require.NoError(t, err)
	for _, good := range []any{"_id_", "k_1", d("_id", 1), d("k", 1), d("$natural", -1)} {
		require.ErrorIs(t, c.FindOne(t.Context(), d(), options.FindOne().SetHint(good)).Err(), driver.ErrNoDocuments)
	}
	for _, bad := range []any{"none", d("none", 1)} {
		require.Equal(t, int32(2), commandError(t, c.FindOne(t.Context(), d(), options.FindOne().SetHint(bad)).Err()).Code)
		_, err := c.UpdateOne(t.Context(), d(), d("$set", d("x", 1)), options.UpdateOne().SetHint(bad))
		require.ErrorContains(t, err, "hint")
		_, err = c.DeleteOne(t.Context(), d(), options.DeleteOne().SetHint(bad))
		require.ErrorContains(t, err, "hint")
	}
}

func TestExplainIsRefusedByName(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.embedded(t) // a server explains
	err := f.client.Database("db").RunCommand(t.Context(), d("explain", d("find", "c"), "verbosity", "queryPlanner")).Err()
	require.Equal(t, int32(238), commandError(t, err).Code)
	require.ErrorContains(t, err, "explain")
	err = f.client.Database("db").RunCommand(t.Context(), d("aggregate", "c", "pipeline", bson.A{}, "cursor", d(), "explain", true)).Err()
	require.ErrorContains(t, err, "explain")
}
