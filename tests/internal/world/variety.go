package world

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// The values of MONGODB_TOPOLOGY.
const (
	replicaSet = "replica-set"
	mongos     = "mongos"
)

// otherShardBehind is how far the other shard lags in a world with a mongos.
const otherShardBehind = 5 * time.Millisecond

// choose returns one of several names: a random choice, or the one in a variable. A test that fails
// prints the choice.
func choose(t *testing.T, variable string, all []string) string {
	t.Helper()
	name := cmp.Or(os.Getenv(variable), all[rand.IntN(len(all))])
	t.Logf("the embedded MongoDB is a random choice; the same again: %s=%s", variable, name)
	return name
}

// asSomeTopology makes an embedded MongoDB act as a member of a replica set or as a mongos with a
// sharded source. A test that gives a reason why it needs a replica set gets one, as does a test
// that is about other servers.
func asSomeTopology(t *testing.T, o *mongo.Options, needsReplicaSet string) {
	t.Helper()
	if needsReplicaSet != "" || o.Mongos != nil || o.DocumentDB || o.NoHello {
		return
	}
	all := []string{replicaSet, mongos}
	name := choose(t, "MONGODB_TOPOLOGY", all)
	require.Contains(t, all, name, "MONGODB_TOPOLOGY")
	if name == mongos {
		o.Mongos = &mongo.Mongos{ShardKeys: map[string]string{sourceDatabase + "." + sourceCollection: "type"}, Behind: otherShardBehind}
	}
}

// likeSomeVersion makes an embedded MongoDB act as one of the versions that users run, but not as
// one before since.
func likeSomeVersion(t *testing.T, o *mongo.Options, since string) {
	t.Helper()
	if o.Version != ([3]int32{}) || o.DocumentDB {
		return
	}
	var err error
	o.Version, err = mongo.ParseVersion(max(choose(t, "MONGODB_VERSION", slices.Sorted(maps.Keys(mongo.Versions))), since))
	require.NoError(t, err, "MONGODB_VERSION")
}
