package deploy

import (
	"strings"
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
	told := map[string]bool{}
	for path, f := range templates(t) {
		for _, r := range f.All("resource") {
			if !strings.Contains(r.Type, "Microsoft.Insights/diagnosticSettings@") {
				continue
			}
			scope, _ := r.Value.Field("scope")
			of, found := f.Find("resource", scope.Text)
			require.True(t, found, "%s: diagnostics of %s", path, scope.Text)
			kind, _, _ := strings.Cut(strings.Trim(of.Type, "'"), "@")
			told[kind] = true
			properties, _ := r.Value.Field("properties")
			to, _ := properties.Field("workspaceId")
			require.Equal(t, "workspaceId", to.Text, path)
			logs, _ := properties.Field("logs")
			require.NotEmpty(t, logs.Items, path)
			_, metrics := properties.Field("metrics")
			require.False(t, metrics, "%s: no query reads metrics in the workspace, and they are paid for", path)
			if kind == "Microsoft.Storage/storageAccounts/blobServices" {
				require.NotContains(t, logs.Text, "StorageWrite", "the checkpoint is written once a second")
				require.NotContains(t, logs.Text, "allLogs")
			}
		}
	}
	require.Equal(t, kinds, told)
}
