package stack

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// EnvTheirs names the variable with the connection string of a MongoDB that replaces the embedded
// one in tests in real time. It must be a replica set that only these tests use: every database on
// it is dropped before each test. scripts/mongod.sh runs the tests with it, one package at a time.
const EnvTheirs = "CONFORMANCE_MONGODB_URI"

// Theirs reports whether a real MongoDB is configured.
func Theirs() bool { return os.Getenv(EnvTheirs) != "" }

// theirs is held by the test that has the real MongoDB.
var theirs sync.Mutex

// MongoDB returns the connection string of the MongoDB for a test: that of the embedded one, or of
// the real one that [EnvTheirs] names. The real one is empty and belongs to the test until the test
// ends: the test may use any database name and may make the server step down.
func MongoDB(t testing.TB, embedded *emulator.Stack) (uri string, real bool) {
	t.Helper()
	if !Theirs() {
		return embedded.Endpoint(EnvMongo), false
	}
	uri = os.Getenv(EnvTheirs)
	theirs.Lock()
	t.Cleanup(theirs.Unlock)
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatalf("connect to the MongoDB of %s: %v", EnvTheirs, err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
	Empty(t, client)
	return uri, true
}

// Empty drops every database that is not one of the server's own.
func Empty(t testing.TB, client *mongo.Client) {
	t.Helper()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatalf("list databases: %v", err)
	}
	for _, name := range names {
		if slices.Contains([]string{"admin", "config", "local"}, name) {
			continue
		}
		if err := client.Database(name).Drop(t.Context()); err != nil {
			t.Fatalf("drop the database %s: %v", name, err)
		}
	}
}
