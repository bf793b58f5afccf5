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

// EnvTheirs names the variable with the connection string of a MongoDB that takes the embedded one's place in tests in real time: a
// replica set that is there for these tests alone, for every database on it is dropped before each. scripts/mongod.sh runs them so, one
// package at a time.
const EnvTheirs = "CONFORMANCE_MONGODB_URI"

// Theirs reports whether there is one.
func Theirs() bool { return os.Getenv(EnvTheirs) != "" }

// theirs is held by the test that has the real MongoDB.
var theirs sync.Mutex

// MongoDB is the connection string of the MongoDB that a test is to use: the embedded one's, or of the real one that [EnvTheirs] names.
// That one is empty then and the test's own until it ends: its databases are called as everybody's, and it may be made to step down.
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

// Empty drops every database that is not the server's own.
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
