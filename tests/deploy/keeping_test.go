package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// An epoch must never be used twice: nothing here deletes the container of checkpoints, and the
// account is locked.
func TestCheckpointsAreNotDeleted(t *testing.T) {
	f := template(t, "modules/storage.bicep")
	lock, found := f.Find("resource", "lock")
	require.True(t, found)
	scope, _ := lock.Value.Field("scope")
	require.Equal(t, "account", scope.Text)
	properties, _ := lock.Value.Field("properties")
	level, _ := properties.Field("level")
	require.Equal(t, "CanNotDelete", level.Text)
	main, _ := template(t, "main.bicep").Find("param", "deleteLock")
	require.Equal(t, "true", main.Value.Text, "locked by default")

	checkpoints, _ := f.Find("resource", "checkpoints")
	name, _ := checkpoints.Value.Field("name")
	rules := map[string]string{}
	lifecycle, found := f.Find("resource", "lifecycle")
	require.True(t, found)
	lifecycle.Value.Walk(func(path []string, v bicep.Value) {
		if len(path) > 0 && path[len(path)-1] == "definition" && v.Kind == bicep.Object {
			filters, _ := v.Field("filters")
			prefixes, _ := filters.Field("prefixMatch")
			require.Len(t, prefixes.Items, 1, "a rule without a prefix is about every container")
			actions, _ := v.Field("actions")
			rules[prefixes.Items[0].Text] = compact(actions.Text)
		}
	})
	require.Equal(t, []string{"'${claimChecks.name}/'", "'${copies.name}/'", "'${results.name}/'"}, sorted(rules))
	require.Contains(t, rules["'${copies.name}/'"], "daysAfterModificationGreaterThan:30}")
	for _, resource := range []string{"claimChecks", "copies", "results"} {
		other, _ := f.Find("resource", resource)
		theirs, _ := other.Value.Field("name")
		require.NotEqual(t, name.Text, theirs.Text)
		require.False(t, strings.HasPrefix(name.Text+"/", theirs.Text+"/"))
	}
}

// Provisioning creates the secrets of the URIs and never overwrites them: a machine with an old
// value would undo a rotation.
func TestProvisioningNeverOverwritesSecrets(t *testing.T) {
	f := template(t, "modules/keyvault.bicep")
	for _, name := range []string{"source", "readModel"} {
		secret, found := f.Find("resource", name)
		require.True(t, found)
		require.True(t, strings.Contains(secret.Type, "vaults/secrets@"))
		require.True(t, slices.Contains(secret.Decorators, "onlyIfNotExists ( )"), "%s", name)
	}
}
