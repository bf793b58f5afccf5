package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo's MongoDB becomes a replica set as soon as it answers, and the container ends when
// MongoDB ends.
func TestTheDemoIsAReplicaSet(t *testing.T) {
	dir := t.TempDir()
	standIn(t, dir, "mongod", "exit 0")
	standIn(t, dir, "mongosh", `[ $(grep -c mongosh `+dir+`/calls) -gt 2 ]`) // it fails twice
	standIn(t, dir, "sleep", "")
	r := run(t, dir, nil, "bash", "-c", read(t, "infra/modules/demo-mongodb.sh"))
	require.Zero(t, r.code, r.errOut)
	require.Contains(t, r.calls, "mongod --replSet demo --bind_ip_all")
	require.Equal(t, 3, strings.Count(r.calls, "mongosh --quiet"), r.calls)
	require.Equal(t, 2, strings.Count(r.calls, "sleep"))
}

// The demo needs no resources of the user, is reachable only from its environment, and leaves
// nothing behind: no lock, and no name that stays reserved.
func TestTheDemoIsDisposable(t *testing.T) {
	app := find(t, "modules/demo-mongodb.bicep", "resource", "mongodb")
	require.Contains(t, compact(app.Value.Text), "ingress:{external:falsetransport:tcptargetPort:27017exposedPort:27017}")
	require.Contains(t, compact(app.Value.Text), "scale:{minReplicas:1maxReplicas:1}", "two replicas would be two databases")
	image := find(t, "modules/demo-mongodb.bicep", "param", "image")
	require.Equal(t, "public.ecr.aws/docker/library/"+compose(t).Services["mongo"].Image, image.Value.Text, "the version that the composition runs")

	const resources = "resources.bicep"
	for mode, made := range map[string]bool{"external": false, "documentdb": false, "demo": true} {
		given := map[string]any{"mongoMode": mode, "sourceMongoUri": ""}
		require.Equal(t, made, eval(t, resources, find(t, resources, "module", "demoMongoDb").Condition, given))
		fill := find(t, resources, "module", "vault").Value.At("params", "fillSource")
		require.Equal(t, mode != "documentdb", evalValue(t, resources, fill, given), "%s: a cluster writes its own", mode)
		passed := find(t, "main.bicep", "module", "resources").Value.At("params")
		for _, name := range []string{"deleteLock", "purgeProtection"} {
			require.Equal(t, mode != "demo", evalValue(t, "main.bicep", passed.At(name), given), name)
		}
	}
}
