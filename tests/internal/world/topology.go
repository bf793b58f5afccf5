package world

import (
	"math/rand/v2"
	"os"
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

// asSomeTopology makes an embedded MongoDB act as a member of a replica set or as a mongos with a
// sharded source: a random choice, or the one in MONGODB_TOPOLOGY. A test that gives a reason why
// it needs a replica set gets one, as does a test that is about other servers. A test that fails
// prints the choice.
func asSomeTopology(t *testing.T, o *mongo.Options, needsReplicaSet string) {
	t.Helper()
	if needsReplicaSet != "" || o.Mongos != nil || o.DocumentDB || o.NoHello {
		return
	}
	name := os.Getenv("MONGODB_TOPOLOGY")
	if name == "" {
		name = []string{replicaSet, mongos}[rand.IntN(2)]
	}
	require.Contains(t, []string{replicaSet, mongos}, name, "MONGODB_TOPOLOGY")
	if name == mongos {
		o.Mongos = &mongo.Mongos{ShardKeys: map[string]string{sourceDatabase + "." + sourceCollection: "type"}, Behind: otherShardBehind}
	}
	t.Logf("the embedded MongoDB speaks as a %s; the same again: MONGODB_TOPOLOGY=%s", name, name)
}
