// Package stores tests the built-in checkpoint stores against servers.
package stores

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		s, err := mongodb.Open(uri, "sluice", nil)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, drivers.Disconnect(context.WithoutCancel(t.Context()), s.Client(), time.Second))
		})
		return s
	})
}

// A record that MongoDB cannot hold is refused before it is sent, and the object stays as it is.
func TestG6AnObjectThatIsTooLargeForMongoDBIsRefused(t *testing.T) {
	t.Parallel()
	_, uri := mongo.Start(t, mongo.Options{})
	s, err := mongodb.Open(uri, "sluice", nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, drivers.Disconnect(context.WithoutCancel(t.Context()), s.Client(), time.Second))
	})
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
