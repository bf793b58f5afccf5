package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
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
	cmd := exec.CommandContext(t.Context(), "bash", "-c", read(t, "infra/modules/demo-mongodb.sh"))
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	require.NoError(t, err)
	require.Contains(t, string(calls), "mongod --replSet demo --bind_ip_all")
	require.Equal(t, 3, strings.Count(string(calls), "mongosh --quiet"), "%s", calls)
	require.Equal(t, 2, strings.Count(string(calls), "sleep"))
}

// The demo needs no resources of the user, is reachable only from its environment, and leaves
// nothing behind: no lock, and no name that stays reserved.
func TestTheDemoIsDisposable(t *testing.T) {
	f := template(t, "modules/demo-mongodb.bicep")
	app, found := f.Find("resource", "mongodb")
	require.True(t, found)
	require.Contains(t, compact(app.Value.Text), "ingress:{external:falsetransport:tcptargetPort:27017exposedPort:27017}")
	require.Contains(t, compact(app.Value.Text), "scale:{minReplicas:1maxReplicas:1}", "two replicas would be two databases")
	image, _ := f.Find("param", "image")
	require.Equal(t, "public.ecr.aws/docker/library/"+compose(t).Services["mongo"].Image, image.Value.Text, "the version that the composition runs")

	resources := template(t, "resources.bicep")
	for mode, made := range map[string]bool{"external": false, "documentdb": false, "demo": true} {
		module, found := resources.Find("module", "demoMongoDb")
		require.True(t, found)
		is, err := resources.Eval(module.Condition, map[string]any{"mongoMode": mode})
		require.NoError(t, err)
		require.Equal(t, made, is)
		given := map[string]any{"mongoMode": mode, "sourceMongoUri": ""}
		vault, _ := resources.Find("module", "vault")
		params, _ := vault.Value.Field("params")
		fill, _ := params.Field("fillSource")
		filled, err := resources.EvalValue(fill, given)
		require.NoError(t, err)
		require.Equal(t, mode != "documentdb", filled, "%s: a cluster writes its own", mode)

		main := template(t, "main.bicep")
		call, _ := main.Find("module", "resources")
		passed, _ := call.Value.Field("params")
		for _, name := range []string{"deleteLock", "purgeProtection"} {
			value, _ := passed.Field(name)
			kept, err := main.EvalValue(value, map[string]any{"mongoMode": mode})
			require.NoError(t, err)
			require.Equal(t, mode != "demo", kept, name)
		}
	}
}
