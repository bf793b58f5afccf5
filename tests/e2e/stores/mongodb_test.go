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
