package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every resource with logs of its own sends them to the workspace, so that it can be found out
// later who deleted a blob, read a secret or was refused by Service Bus.
func TestEveryResourceLogsToTheWorkspace(t *testing.T) {
	kinds := map[string]bool{ // our types that have logs; the workspace receives them
		"Microsoft.ServiceBus/namespaces": true, "Microsoft.Storage/storageAccounts/blobServices": true,
		"Microsoft.KeyVault/vaults": true, "Microsoft.ContainerRegistry/registries": true,
		"Microsoft.DocumentDB/mongoClusters": true, "Microsoft.App/managedEnvironments": true,
	}
	reported := map[string]bool{}
	for path, r := range declared(t, "resource") {
		if r.Kind() != "Microsoft.Insights/diagnosticSettings" {
			continue
		}
		kind := find(t, path, "resource", r.Value.At("scope").Text).Kind()
		reported[kind] = true
		properties := r.Value.At("properties")
		require.Equal(t, "workspaceId", properties.At("workspaceId").Text, path)
		logs := properties.At("logs")
		require.NotEmpty(t, logs.Items, path)
		_, metrics := properties.Field("metrics")
		require.False(t, metrics, "%s: no query reads metrics in the workspace, and they are paid for", path)
		if kind == "Microsoft.Storage/storageAccounts/blobServices" {
			require.NotContains(t, logs.Text, "StorageWrite", "the checkpoint is written once a second")
			require.NotContains(t, logs.Text, "allLogs")
		}
	}
	require.Equal(t, kinds, reported)
}
