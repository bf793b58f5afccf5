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
	const file = "modules/storage.bicep"
	lock := find(t, file, "resource", "lock").Value
	require.Equal(t, "account", lock.At("scope").Text)
	require.Equal(t, "CanNotDelete", lock.At("properties", "level").Text)
	require.Equal(t, "true", find(t, "main.bicep", "param", "deleteLock").Value.Text, "locked by default")

	name := find(t, file, "resource", "checkpoints").Value.At("name").Text
	rules := map[string]string{}
	find(t, file, "resource", "lifecycle").Value.Walk(func(path []string, v bicep.Value) {
		if len(path) > 0 && path[len(path)-1] == "definition" && v.Kind == bicep.Object {
			prefixes := v.At("filters", "prefixMatch").Items
			require.Len(t, prefixes, 1, "a rule without a prefix is about every container")
			rules[prefixes[0].Text] = compact(v.At("actions").Text)
		}
	})
	require.Equal(t, []string{"'${claimChecks.name}/'", "'${copies.name}/'", "'${results.name}/'"}, sorted(rules))
	require.Contains(t, rules["'${copies.name}/'"], "daysAfterModificationGreaterThan:30}")
	for _, resource := range []string{"claimChecks", "copies", "results"} {
		theirs := find(t, file, "resource", resource).Value.At("name").Text
		require.False(t, strings.HasPrefix(name+"/", theirs+"/"))
	}
}

// Provisioning creates the secrets of the URIs and never overwrites them: a machine with an old
// value would undo a rotation.
func TestProvisioningNeverOverwritesSecrets(t *testing.T) {
	for _, name := range []string{"source", "readModel"} {
		secret := find(t, "modules/keyvault.bicep", "resource", name)
		require.True(t, strings.Contains(secret.Type, "vaults/secrets@"))
		require.True(t, slices.Contains(secret.Decorators, "onlyIfNotExists ( )"), "%s", name)
	}
}
