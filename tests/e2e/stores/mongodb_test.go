// Package stores tests the built-in checkpoint stores against servers.
package stores

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/mongodb"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	drivers "github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func TestMongoDBIsAStore(t *testing.T) {
	t.Parallel()
	_, uri := mongo.Start(t, mongo.Options{})
	storetest.Test(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t, uri)
	})
}

// open returns a client of the store.
func open(t *testing.T, uri string) *mongodb.Store {
	t.Helper()
	s, err := mongodb.Open(uri, "sluice", nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, drivers.Disconnect(context.WithoutCancel(t.Context()), s.Client(), time.Second))
	})
	return s
}

// G4: a write that a majority has not confirmed is no success.
func TestG4AnErrorOfTheWriteConcernIsNoSuccess(t *testing.T) {
	t.Parallel()
	_, uri := mongo.Start(t, mongo.Options{})
	s := open(t, uri)
	tag, err := s.Create(t.Context(), "record", []byte("first"))
	require.NoError(t, err)
	const writeConcernTimeout = 64
	require.NoError(t, s.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: "alwaysOn"},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"insert", "update", "delete"}},
			{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: writeConcernTimeout}, {Key: "errmsg", Value: "waiting for replication timed out"}}},
		}},
	}).Err())
	_, err = s.Put(t.Context(), "record", []byte("second"), tag)
	require.ErrorContains(t, err, "waiting for replication timed out")
	_, err = s.Create(t.Context(), "other", []byte("first"))
	require.ErrorContains(t, err, "waiting for replication timed out")
	require.ErrorContains(t, s.Delete(t.Context(), "record"), "waiting for replication timed out")
}

// A record that MongoDB cannot hold is refused before it is sent, and the object stays as it is.
func TestG6AnObjectThatIsTooLargeForMongoDBIsRefused(t *testing.T) {
	t.Parallel()
	_, uri := mongo.Start(t, mongo.Options{})
	s := open(t, uri)
	whole, large := make([]byte, mongodb.MaxBytes), make([]byte, mongodb.MaxBytes+1)
	tag, err := s.Create(t.Context(), "whole", whole)
	require.NoError(t, err)
	_, err = s.Put(t.Context(), "whole", large, tag)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.ErrorContains(t, err, "put whole: 16773121 bytes")
	_, err = s.Create(t.Context(), "large", large)
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = s.Get(t.Context(), "large")
	require.ErrorIs(t, err, store.ErrNotFound)
	kept, err := s.Get(t.Context(), "whole")
	require.NoError(t, err)
	require.Equal(t, tag, kept.Tag)
}
