package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// preflight runs preflight.sh with settings that it accepts, changed by those given.
func preflight(t *testing.T, dir string, settings ...string) ran {
	t.Helper()
	accepted := []string{
		"AZURE_LOCATION=westeurope", "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events",
		"SOURCE_MONGODB_URI=mongodb://hunter2",
	}
	return run(t, dir, append(accepted, settings...), "sh", "scripts/preflight.sh")
}

// Everything that is wrong is reported at once, and no value is printed. More cases are the sets of
// parameters that the templates must accept or refuse (snapshots_test.go).
func TestPreflightReportsWhatIsWrong(t *testing.T) {
	const (
		network  = "AZURE_SUBSCRIPTION_ID=sub NETWORK="
		vault    = "AZURE_SUBSCRIPTION_ID=sub AZURE_ENV_NAME=prod KEY_VAULT_RECOVER="
		replica  = "SERVICE_BUS_SKU=Premium SERVICE_BUS_REPLICA_REGION=swedencentral "
		badLag   = "SERVICE_BUS_REPLICA_LAG_SECONDS is neither"
		noZones  = "AZURE_LOCATION has no availability zones"
		badVault = "the vault of a deleted environment"
	)
	for _, c := range []struct {
		set, az string
		want    []string
	}{
		{set: "MONGODB_DATABASE= MONGODB_COLLECTION= SOURCE_MONGODB_URI=", want: []string{
			"MONGODB_DATABASE is not set", "MONGODB_COLLECTION is not set", "SOURCE_MONGODB_URI is not set",
		}},
		{set: "MONGO_MODE=cosmos", want: []string{"MONGO_MODE is neither"}},
		// Without an address no alert is delivered. That may be intended, so it is no error.
		{set: "ALERT_EMAIL=", want: []string{"warning: ALERT_EMAIL is not set"}},

		{set: "NETWORK_PREFIX=10.0.0.0", want: []string{"NETWORK_PREFIX must be"}},
		{set: "NETWORK=private SERVICE_BUS_SKU=Premium SUBNET_ID=/x", want: []string{"ENDPOINT_SUBNET_ID is not set"}},
		{set: "NETWORK=hidden SERVICE_BUS_SKU=Premium", want: []string{"NETWORK is neither"}},
		// A network needs a resource provider that Azure does not register for this template.
		{set: network + "vnet", az: "echo Registered"},
		{set: network + "vnet", az: "echo NotRegistered", want: []string{"Microsoft.ContainerService is not registered"}},
		{set: network + "vnet", az: "echo"},
		{set: network + "public", az: "echo NotRegistered"},

		{set: replica + "SERVICE_BUS_REPLICA_LAG_SECONDS=0"},
		{set: replica + "SERVICE_BUS_REPLICA_LAG_SECONDS=300"},
		{set: replica + "SERVICE_BUS_REPLICA_LAG_SECONDS=86400"},
		{set: replica + "SERVICE_BUS_REPLICA_LAG_SECONDS=86401", want: []string{badLag}},
		{set: replica + "SERVICE_BUS_REPLICA_LAG_SECONDS=5m", want: []string{badLag}},
		{set: replica + "SERVICE_BUS_REPLICA_REGION=westeurope", want: []string{"SERVICE_BUS_REPLICA_REGION is the region itself"}},

		// A region without zones is refused before anything is created, unless the redundancy is
		// set.
		{set: "AZURE_LOCATION=eastus"},
		{set: "AZURE_LOCATION=westus3"},
		{set: "AZURE_LOCATION=westus", want: []string{noZones}},
		{set: "AZURE_LOCATION=ukwest", want: []string{noZones}},
		{set: "AZURE_LOCATION=east", want: []string{noZones}},
		{set: "AZURE_LOCATION=westus STORAGE_REDUNDANCY=Standard_LRS"},

		// With anything but numbers the scaler would refuse the rule, and the app would never
		// scale.
		{set: "PROJECTOR_MIN_REPLICAS=0 PROJECTOR_MAX_REPLICAS=1000 PROJECTOR_MESSAGES_PER_REPLICA=1"},
		{set: "PROJECTOR_MAX_REPLICAS=0 PROJECTOR_MIN_REPLICAS=0", want: []string{"PROJECTOR_MAX_REPLICAS must be"}},
		{set: "PROJECTOR_MIN_REPLICAS=-1", want: []string{"PROJECTOR_MIN_REPLICAS must be"}},
		{set: "PROJECTOR_MESSAGES_PER_REPLICA=x", want: []string{"PROJECTOR_MESSAGES_PER_REPLICA must be"}},

		// A deleted vault keeps its name, and Azure would refuse a new one with that name after
		// some minutes. Without an answer nothing is refused.
		{set: vault, az: "echo"},
		{set: vault + "true", az: "echo kv-x"},
		{set: vault, az: "echo kv-x", want: []string{badVault}},
		{set: vault + "false", az: "echo kv-x", want: []string{badVault}},
		{set: vault + "true", az: "echo", want: []string{"KEY_VAULT_RECOVER is true"}},
		{set: vault, az: "exit 1"},
		{set: vault + "true", az: "exit 1"},
	} {
		t.Run(c.set+" "+c.az, func(t *testing.T) {
			dir := t.TempDir()
			standIn(t, dir, "az", c.az)
			r := preflight(t, dir, strings.Fields(c.set)...)
			require.Equal(t, len(c.want), strings.Count(r.errOut, "\n"), r.errOut)
			refused := false
			for _, text := range c.want {
				require.Contains(t, r.errOut, "preflight: "+text)
				refused = refused || !strings.HasPrefix(text, "warning: ")
			}
			require.Equal(t, refused, r.code == 1, r.code)
			require.NotContains(t, r.errOut, "hunter2")
			require.Empty(t, r.out)
		})
	}
}

// What preflight refuses, the templates and preflight.ps1 refuse with the same words: a deployment
// need not come from azd. Only preflight checks what the types of the templates refuse anyway, what
// requires a request to Azure, and what Azure may have changed since.
func TestTheTemplatesRefuseWhatPreflightRefuses(t *testing.T) {
	preflights := []string{
		"MONGO_MODE is neither", "NETWORK is neither", "AZURE_LOCATION has no", "Microsoft.ContainerService is not",
		"the vault of a deleted", "KEY_VAULT_RECOVER is true",
	}
	templates := []string{"Either topic and subscription are set"} // azd sets them
	refusals := map[string]bool{}
	for _, m := range regexp.MustCompile(`fail\('((?:[^'])*)'\)`).FindAllStringSubmatch(read(t, "infra/main.bicep")+read(t, "infra/app/projector.bicep"), -1) {
		if !slices.ContainsFunc(templates, func(p string) bool { return strings.HasPrefix(m[1], p) }) {
			refusals[m[1]] = true
		}
	}
	sh, ps1 := map[string]bool{}, map[string]bool{}
	for text, found := range map[string]map[string]bool{read(t, "scripts/preflight.sh"): sh, read(t, "scripts/preflight.ps1"): ps1} {
		for _, m := range regexp.MustCompile(`(?i)\bproblem ["']([^"']*)["']`).FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(preflights, func(p string) bool { return strings.HasPrefix(m[1], p) }) {
				found[m[1]] = true
			}
		}
		for _, m := range regexp.MustCompile(`(?i)\brequired '?([A-Z_]{5,})'? '([^']*)'`).FindAllStringSubmatch(text, -1) {
			found[m[1]+" is not set: "+m[2]] = true
		}
	}
	delete(ps1, "$name is not set: $what")
	delete(sh, "$1 is not set: $2")
	require.Equal(t, sorted(refusals), sorted(sh))
	require.Equal(t, sorted(sh), sorted(ps1))
	regions := regexp.MustCompile(`(?s)\n((?:[a-z0-9]+ ?)+\n)+'`)
	zones := regions.FindString(read(t, "scripts/preflight.sh"))
	require.Contains(t, zones, "swedencentral")
	require.Equal(t, zones, regions.FindString(read(t, "scripts/preflight.ps1")), "the same regions with zones")
}
