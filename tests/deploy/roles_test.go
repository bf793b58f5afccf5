package deploy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The built-in roles that may be used, by id.
var roles = map[string]string{
	"ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
	"2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": "Storage Blob Data Reader",
	"69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": "Azure Service Bus Data Sender",
	"4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0": "Azure Service Bus Data Receiver",
	"090c5cfd-751d-490a-894a-3ce6f1109419": "Azure Service Bus Data Owner",
	"7f951dda-4ed3-4680-a7ca-43fe172d538d": "AcrPull",
	"4633458b-17de-408a-b874-0445c86b69e6": "Key Vault Secrets User",
	"b9a307c4-5aa3-4b52-ba60-2b17c136cd7b": "Container Apps Jobs Operator",
}

type grant struct{ who, role, on string }

// allowed lists all role assignments. An assignment that is not in it fails the test, as does one
// that is missing: this table, the threat model of infra/README.md and the templates agree.
var allowed = map[grant]bool{
	{"producer.properties.principalId", "Azure Service Bus Data Sender", "topic"}:         true,
	{"producer.properties.principalId", "Azure Service Bus Data Sender", "queue"}:         true,
	{"producer.properties.principalId", "Storage Blob Data Contributor", "checkpoints"}:   true,
	{"producer.properties.principalId", "Storage Blob Data Contributor", "copies"}:        true,
	{"operatorsGroupId", "Storage Blob Data Reader", "copies"}:                            true,
	{"producer.properties.principalId", "Storage Blob Data Contributor", "results"}:       true, // the output of a command
	{"projector.properties.principalId", "Storage Blob Data Contributor", "results"}:      true,
	{"operatorsGroupId", "Storage Blob Data Reader", "results"}:                           true,
	{"producer.properties.principalId", "Storage Blob Data Contributor", "claimChecks"}:   true,
	{"producer.properties.principalId", "Key Vault Secrets User", "vault::source"}:        true,
	{"projector.properties.principalId", "Azure Service Bus Data Receiver", "projection"}: true, // the subscription
	{"projector.properties.principalId", "Azure Service Bus Data Receiver", "queue"}:      true,
	{"projector.properties.principalId", "Storage Blob Data Reader", "claimChecks"}:       true,
	{"projector.properties.principalId", "Storage Blob Data Reader", "checkpoints"}:       true, // build and repair
	{"projector.properties.principalId", "Key Vault Secrets User", "vault::readModel"}:    true,
	{"sourceReader.properties.principalId", "Key Vault Secrets User", "vault::source"}:    true, // for the projector's jobs
	{"scaler.properties.principalId", "Azure Service Bus Data Owner", "projection"}:       true,
	{"scaler.properties.principalId", "Azure Service Bus Data Owner", "queue"}:            true,
	{"operatorsGroupId", "Azure Service Bus Data Receiver", "projection"}:                 true,
	{"operatorsGroupId", "Azure Service Bus Data Receiver", "queue"}:                      true,
	{"operatorsGroupId", "Storage Blob Data Reader", "checkpoints"}:                       true,
	{"operatorsGroupId", "Storage Blob Data Reader", "claimChecks"}:                       true,
	{"operatorsGroupId", "Key Vault Secrets User", "vault::readModel"}:                    true,
	{"operatorsGroupId", "Container Apps Jobs Operator", "job"}:                           true, // those that an operator starts
	{"producer.properties.principalId", "AcrPull", "registry"}:                            true, // of both images: the narrowest role there is
	{"projector.properties.principalId", "AcrPull", "registry"}:                           true,
}

var guid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func TestRoleAssignmentsMatchTheTable(t *testing.T) {
	found := map[grant]bool{}
	for path, r := range declared(t, "resource") {
		if kind := r.Kind(); r.Existing || kind != "Microsoft.Authorization/roleAssignments" {
			require.True(t, r.Existing || !strings.Contains(kind, "Authorization/") || strings.HasSuffix(kind, "Authorization/locks"), "%s: %s", path, r.Name)
			continue
		}
		require.NotContains(t, strings.ToLower(r.Condition), "network", "%s: %s: permissions do not depend on the network", path, r.Name)
		properties := r.Value.At("properties")
		who, kind := properties.At("principalId").Text, properties.At("principalType").Text
		if people := who == "operatorsGroupId"; people {
			require.Equal(t, "Group", kind, "%s: %s", path, r.Name)
			without := eval(t, path, r.Condition, map[string]any{"operatorsGroupId": "", "entityKind": "topic"})
			require.Equal(t, false, without, "%s: %s: without a group there is no assignment", path, r.Name)
		} else {
			require.Equal(t, "ServicePrincipal", kind, "%s: %s: without it, a new identity is not found for minutes", path, r.Name)
		}
		definition := properties.At("roleDefinitionId").Text
		role := find(t, path, "var", definition)
		on, ok := r.Value.Field("scope")
		require.True(t, ok, "%s: %s: without a scope it is the whole resource group", path, r.Name)
		g := grant{compact(who), roles[guid.FindString(role.Value.Text)], compact(on.Text)}
		require.True(t, allowed[g], "%s: %s grants %v, which is not in the table", path, r.Name, g)
		require.False(t, found[g], "%s: %v is granted twice", path, g)
		found[g] = true

		id := strings.Replace(g.who, ".properties.principalId", ".id", 1)
		require.Equal(t, "guid("+g.on+".id,"+id+","+definition+")", compact(r.Value.At("name").Text),
			"%s: %s: the name must follow from what it grants, or a change of it is refused; from nothing that only the deployment knows, "+
				"or the preview leaves it out", path, r.Name)
	}
	require.Equal(t, allowed, found)
	// The role lets a member start a job with another command and another image, so the README's
	// table states the consequence.
	require.Contains(t, read(t, "infra/README.md"), "start the jobs, with any command and any image: so everything that producer and projector may")
}

var spaces = regexp.MustCompile(`\s+`)

func compact(expression string) string { return spaces.ReplaceAllString(expression, "") }

// The scaler's identity owns the subscription, and another one reads the source's URI for a job, so
// no container may get their tokens.
func TestNoContainerGetsTheTokensOfThePlatform(t *testing.T) {
	settings := appOf(t, "projector").Value.At("properties", "configuration", "identitySettings")
	require.Equal(t, "[ { identity : scalerIdentityId lifecycle : None } ]", settings.Text)
	settings = find(t, "app/job.bicep", "resource", "job").Value.At("properties", "configuration", "identitySettings")
	require.Equal(t, "readsSource ? [ { identity : sourceIdentityId lifecycle : None } ] : [ ]", settings.Text)
	require.Equal(t, "identityClientId", containerEnv(t, "projector")["AZURE_CLIENT_ID"].Text)
}
