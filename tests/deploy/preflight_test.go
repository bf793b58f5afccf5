package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func preflight(t *testing.T, env ...string) (string, int) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("preflight.sh is not for Windows, which has preflight.ps1")
	}
	cmd := exec.CommandContext(t.Context(), "sh", root+"/scripts/preflight.sh")
	cmd.Env = env
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(output), cmd.ProcessState.ExitCode()
}

// Everything that is missing is reported at once, and no value is printed.
func TestPreflightReportsWhatIsMissing(t *testing.T) {
	output, code := preflight(t)
	require.Equal(t, 1, code)
	for _, name := range []string{"MONGODB_DATABASE", "MONGODB_COLLECTION", "SOURCE_MONGODB_URI"} {
		require.Contains(t, output, "preflight: "+name+" is not set")
	}
	output, code = preflight(t, "AZURE_LOCATION=westeurope", "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "MONGO_MODE=documentdb")
	require.Equal(t, 1, code)
	require.Equal(t, 1, strings.Count(output, "preflight:"), output)
	require.Contains(t, output, "DOCUMENTDB_PASSWORD")
	output, code = preflight(t, "AZURE_LOCATION=westeurope", "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "MONGO_MODE=cosmos", "SOURCE_MONGODB_URI=hunter2")
	require.Equal(t, 1, code)
	require.Contains(t, output, "MONGO_MODE")
	require.NotContains(t, output, "hunter2")
}

func TestPreflightAcceptsCorrectSettings(t *testing.T) {
	for _, env := range [][]string{
		{"AZURE_LOCATION=westeurope", "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"},
		{"AZURE_LOCATION=westeurope", "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "MONGO_MODE=documentdb", "DOCUMENTDB_PASSWORD=12345678"},
		{"AZURE_LOCATION=westeurope", "ALERT_EMAIL=oncall@example.com", "MONGO_MODE=demo"},
	} {
		output, code := preflight(t, env...)
		require.Equal(t, 0, code, output)
		require.Empty(t, output)
	}
}

// Without an address no alert is delivered. That may be intended, so it is a warning and not an
// error.
func TestPreflightWarnsOfAlertsWithoutAnAddress(t *testing.T) {
	output, code := preflight(t, "AZURE_LOCATION=westeurope", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x")
	require.Equal(t, 0, code, output)
	require.Equal(t, 1, strings.Count(output, "\n"), output)
	require.Contains(t, output, "preflight: warning: ALERT_EMAIL is not set")
	require.Contains(t, read(t, "scripts/preflight.ps1"), strings.TrimSpace(output), "the same on Windows")
}

func TestPreflightChecksThePrivateNetwork(t *testing.T) {
	env := []string{"AZURE_LOCATION=westeurope", "ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"}
	for _, c := range []struct {
		set  []string
		code int
	}{
		{[]string{"NETWORK=private", "SERVICE_BUS_SKU=Premium"}, 0},
		{[]string{"NETWORK=public"}, 0},
		{[]string{"NETWORK=vnet"}, 0},
		{[]string{"NETWORK=vnet", "SUBNET_ID=/x"}, 0},
		{[]string{"NETWORK=private", "SERVICE_BUS_SKU=Premium", "SUBNET_ID=/x", "ENDPOINT_SUBNET_ID=/y"}, 0},
		{[]string{"NETWORK_PREFIX=10.0.0.0/16"}, 0},
		{[]string{"NETWORK_PREFIX=10.0.0.0/26"}, 1},
		{[]string{"NETWORK_PREFIX=10.0.0.0"}, 1},
		{[]string{"SUBNET_ID=/x"}, 1},
		{[]string{"NETWORK=private", "SERVICE_BUS_SKU=Premium", "SUBNET_ID=/x"}, 1},
		{[]string{"NETWORK=private"}, 1},
		{[]string{"NETWORK=private", "SERVICE_BUS_SKU=Standard"}, 1},
		{[]string{"NETWORK=hidden", "SERVICE_BUS_SKU=Premium"}, 1},
	} {
		output, code := preflight(t, append(env, c.set...)...)
		require.Equal(t, c.code, code, "%v: %s", c.set, output)
		if code != 0 {
			require.Regexp(t, "preflight: (NETWORK|SUBNET_ID|ENDPOINT_SUBNET_ID)", output)
			require.Contains(t, read(t, "scripts/preflight.ps1"), strings.TrimPrefix(strings.TrimSpace(output), "preflight: "))
		}
	}
}

func TestPreflightChecksTheSizeOfReplicas(t *testing.T) {
	env := []string{
		"ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x",
		"AZURE_LOCATION=westeurope", "SERVICE_BUS_REPLICA_REGION=swedencentral", "SERVICE_BUS_SKU=Premium",
	}
	for _, c := range []struct {
		set  string
		says string
	}{
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=", ""},
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=0", ""},
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=300", ""},
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=86400", ""},
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=60", "SERVICE_BUS_REPLICA_LAG_SECONDS is neither"},
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=86401", "SERVICE_BUS_REPLICA_LAG_SECONDS is neither"},
		{"SERVICE_BUS_REPLICA_LAG_SECONDS=5m", "SERVICE_BUS_REPLICA_LAG_SECONDS is neither"},
		{"SERVICE_BUS_REPLICA_REGION=westeurope", "SERVICE_BUS_REPLICA_REGION is the region itself"},
		{"SERVICE_BUS_SKU=Standard", "SERVICE_BUS_REPLICA_REGION needs"},
	} {
		output, code := preflight(t, append(env, c.set)...)
		if c.says == "" {
			require.Equal(t, 0, code, "%s: %s", c.set, output)
			continue
		}
		require.Equal(t, 1, code, c.set)
		require.Contains(t, output, "preflight: "+c.says)
		require.Contains(t, read(t, "scripts/preflight.ps1"), strings.TrimPrefix(strings.TrimSpace(output), "preflight: "), "the same on Windows")
	}
}

// A region without zones is refused before anything is created, unless the redundancy is set.
func TestPreflightChecksTheRegionsZones(t *testing.T) {
	env := []string{"AZURE_LOCATION=westeurope", "ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"}
	for _, region := range []string{"westeurope", "eastus", "westus3"} {
		output, code := preflight(t, append(env, "AZURE_LOCATION="+region)...)
		require.Equal(t, 0, code, output)
	}
	for _, region := range []string{"westus", "ukwest", "east"} {
		output, code := preflight(t, append(env, "AZURE_LOCATION="+region)...)
		require.Equal(t, 1, code)
		require.Contains(t, output, "no availability zones")
		output, code = preflight(t, append(env, "AZURE_LOCATION="+region, "STORAGE_REDUNDANCY=Standard_LRS")...)
		require.Equal(t, 0, code, output)
	}
	listed := regexp.MustCompile(`(?s)\n((?:[a-z0-9]+ ?)+\n)+'`)
	sh, ps1 := listed.FindString(read(t, "scripts/preflight.sh")), listed.FindString(read(t, "scripts/preflight.ps1"))
	require.Contains(t, sh, "swedencentral")
	require.Equal(t, sh, ps1, "the same list on Windows")
}

// The script for Windows asks for the same.
func TestPreflightIsTheSameOnWindows(t *testing.T) {
	asks := regexp.MustCompile(`(?i)\brequired '?([A-Z_]{5,})'? '([^']*)'`)
	found := func(path string) [][]string {
		var all [][]string
		for _, m := range asks.FindAllStringSubmatch(read(t, path), -1) {
			all = append(all, m[1:])
		}
		return all
	}
	require.Len(t, found("scripts/preflight.sh"), 4)
	require.Equal(t, found("scripts/preflight.sh"), found("scripts/preflight.ps1"))
}

// The scale rule of the projector has numbers: with anything else the scaler would refuse the rule,
// and the app would never scale.
func TestPreflightChecksTheScaleRule(t *testing.T) {
	env := []string{"AZURE_LOCATION=westeurope", "ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"}
	for _, c := range []struct {
		set  []string
		says string
	}{
		{[]string{"PROJECTOR_MIN_REPLICAS=0", "PROJECTOR_MAX_REPLICAS=1000", "PROJECTOR_MESSAGES_PER_REPLICA=1"}, ""},
		{[]string{"PROJECTOR_MIN_REPLICAS=3", "PROJECTOR_MAX_REPLICAS=1"}, "PROJECTOR_MIN_REPLICAS is above PROJECTOR_MAX_REPLICAS"},
		{[]string{"PROJECTOR_MAX_REPLICAS=0", "PROJECTOR_MIN_REPLICAS=0"}, "PROJECTOR_MAX_REPLICAS must be"},
		{[]string{"PROJECTOR_MAX_REPLICAS=1001"}, "PROJECTOR_MAX_REPLICAS must be"},
		{[]string{"PROJECTOR_MIN_REPLICAS=-1"}, "PROJECTOR_MIN_REPLICAS must be"},
		{[]string{"PROJECTOR_MESSAGES_PER_REPLICA=0"}, "PROJECTOR_MESSAGES_PER_REPLICA must be"},
		{[]string{"PROJECTOR_MESSAGES_PER_REPLICA=x"}, "PROJECTOR_MESSAGES_PER_REPLICA must be"},
	} {
		output, code := preflight(t, append(env, c.set...)...)
		if c.says == "" {
			require.Equal(t, 0, code, output)
			continue
		}
		require.Equal(t, 1, code, c.set)
		require.Equal(t, 1, strings.Count(output, "preflight: "), output)
		require.Contains(t, output, "preflight: "+c.says)
	}
}

// A network needs a resource provider that Azure does not register for this template.
func TestPreflightRequiresTheNetworksProvider(t *testing.T) {
	for state, code := range map[string]int{"Registered": 0, "NotRegistered": 1, "": 0} {
		for _, network := range []string{"public", "vnet"} {
			dir := t.TempDir()
			standIn(t, dir, "az", "echo "+state)
			output, got := preflight(t, "PATH="+dir+":"+os.Getenv("PATH"), "AZURE_SUBSCRIPTION_ID=sub", "NETWORK="+network,
				"AZURE_LOCATION=westeurope", "ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x")
			if network == "public" {
				require.Equal(t, 0, got, output)
				require.NoFileExists(t, dir+"/calls")
				continue
			}
			require.Equal(t, code, got, "%s: %s", state, output)
			require.Equal(t, code == 1, strings.Contains(output, "az provider register --namespace Microsoft.ContainerService"))
		}
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
}

// A deleted vault keeps its name, and Azure would refuse a new one with that name after some
// minutes.
func TestPreflightDetectsADeletedVault(t *testing.T) {
	for _, c := range []struct {
		vaults, recover, says string
	}{
		{"", "", ""},
		{"kv-x", "true", ""},
		{"kv-x", "", "the vault of a deleted environment"},
		{"kv-x", "false", "the vault of a deleted environment"},
		{"", "true", "KEY_VAULT_RECOVER is true"},
	} {
		dir := t.TempDir()
		standIn(t, dir, "az", "echo "+c.vaults)
		output, code := preflight(t, "PATH="+dir+":"+os.Getenv("PATH"), "AZURE_SUBSCRIPTION_ID=sub", "AZURE_ENV_NAME=prod", "KEY_VAULT_RECOVER="+c.recover,
			"AZURE_LOCATION=westeurope", "ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x")
		require.Equal(t, c.says == "", code == 0, output)
		require.Contains(t, output, c.says)
		standIn(t, dir, "az", "exit 1")
		output, code = preflight(t, "PATH="+dir+":"+os.Getenv("PATH"), "AZURE_SUBSCRIPTION_ID=sub", "AZURE_ENV_NAME=prod", "KEY_VAULT_RECOVER="+c.recover,
			"AZURE_LOCATION=westeurope", "ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x")
		require.Zero(t, code, "without an answer nothing is refused: %s", output)
	}
}
