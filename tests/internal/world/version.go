package world

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// likeSomeVersion makes an embedded MongoDB act as one of the versions that users run, but not as
// one before since: a random choice, or the one in MONGODB_VERSION. A test that fails prints the
// choice.
func likeSomeVersion(t *testing.T, o *mongo.Options, since string) {
	t.Helper()
	if o.Version != ([3]int32{}) || o.DocumentDB {
		return
	}
	name := os.Getenv("MONGODB_VERSION")
	if name == "" {
		all := slices.Sorted(maps.Keys(mongo.Versions))
		name = all[rand.IntN(len(all))]
	}
	name = max(name, since)
	var err error
	o.Version, err = mongo.ParseVersion(name)
	require.NoError(t, err, "MONGODB_VERSION")
	t.Logf("the embedded MongoDB is like %s; the same again: MONGODB_VERSION=%s", name, name)
}
