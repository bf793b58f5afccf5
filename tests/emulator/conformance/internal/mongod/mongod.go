// Package mongod gives a test the real MongoDB that replaces the embedded one.
package mongod

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// URI returns the connection string of the real MongoDB, a replica set that is there for these
// tests alone, or "" if the embedded one is to be used. scripts/mongod.sh sets the variable.
func URI() string { return os.Getenv("CONFORMANCE_MONGODB_URI") }

// used is held by the test that has the real MongoDB.
var used sync.Mutex

// ForTest returns the connection string of the real MongoDB. The server is empty, and no other test
// uses it until t ends.
func ForTest(t testing.TB) (uri string) {
	t.Helper()
	used.Lock()
	t.Cleanup(used.Unlock)
	client, err := mongo.Connect(options.Client().ApplyURI(URI()))
	require.NoError(t, err)
	defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
	Empty(t, client)
	return URI()
}

// Empty drops every database that is not the server's own.
func Empty(t testing.TB, client *mongo.Client) {
	t.Helper()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	for _, name := range names {
		if !slices.Contains([]string{"admin", "config", "local"}, name) {
			require.NoError(t, client.Database(name).Drop(t.Context()))
		}
	}
}
