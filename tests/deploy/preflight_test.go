package deploy

import (
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func preflight(t *testing.T, env ...string) (string, int) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("preflight.sh is for others; Windows has preflight.ps1")
	}
	cmd := exec.CommandContext(t.Context(), "sh", root+"/scripts/preflight.sh")
	cmd.Env = env
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(output), cmd.ProcessState.ExitCode()
}

// Everything that is missing is told at once, and no value is.
func TestPreflightTellsWhatIsMissing(t *testing.T) {
	output, code := preflight(t)
	require.Equal(t, 1, code)
	for _, name := range []string{"MONGODB_DATABASE", "MONGODB_COLLECTION", "SOURCE_MONGODB_URI"} {
		require.Contains(t, output, "preflight: "+name+" is not set")
	}
	output, code = preflight(t, "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "MONGO_MODE=documentdb")
	require.Equal(t, 1, code)
	require.Equal(t, 1, strings.Count(output, "preflight:"), output)
	require.Contains(t, output, "DOCUMENTDB_PASSWORD")
	output, code = preflight(t, "ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "MONGO_MODE=cosmos", "SOURCE_MONGODB_URI=hunter2")
	require.Equal(t, 1, code)
	require.Contains(t, output, "MONGO_MODE")
	require.NotContains(t, output, "hunter2")
}

func TestPreflightLetsTheRightThrough(t *testing.T) {
	for _, env := range [][]string{
		{"ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"},
		{"ALERT_EMAIL=oncall@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "MONGO_MODE=documentdb", "DOCUMENTDB_PASSWORD=12345678"},
	} {
		output, code := preflight(t, env...)
		require.Equal(t, 0, code, output)
		require.Empty(t, output)
	}
}

// Without an address nobody is woken: that may be meant, so it is said and stops nothing.
func TestPreflightWarnsOfAlertsThatWakeNobody(t *testing.T) {
	output, code := preflight(t, "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x")
	require.Equal(t, 0, code, output)
	require.Equal(t, 1, strings.Count(output, "\n"), output)
	require.Contains(t, output, "preflight: warning: ALERT_EMAIL is not set")
	require.Contains(t, read(t, "scripts/preflight.ps1"), strings.TrimSpace(output), "the same on Windows")
}

func TestPreflightKnowsWhatAPrivateNetworkNeeds(t *testing.T) {
	env := []string{"ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"}
	for _, c := range []struct {
		set  []string
		code int
	}{
		{[]string{"NETWORK=private", "SERVICE_BUS_SKU=Premium"}, 0},
		{[]string{"NETWORK=public"}, 0},
		{[]string{"NETWORK=private"}, 1},
		{[]string{"NETWORK=private", "SERVICE_BUS_SKU=Standard"}, 1},
		{[]string{"NETWORK=hidden", "SERVICE_BUS_SKU=Premium"}, 1},
	} {
		output, code := preflight(t, append(env, c.set...)...)
		require.Equal(t, c.code, code, "%v: %s", c.set, output)
		if code != 0 {
			require.Contains(t, output, "preflight: NETWORK")
			require.Contains(t, read(t, "scripts/preflight.ps1"), strings.TrimPrefix(strings.TrimSpace(output), "preflight: "))
		}
	}
}

func TestPreflightKnowsWhatAReplicaNeeds(t *testing.T) {
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

// A region without zones is refused before anything is made, unless somebody says which redundancy it shall have.
func TestPreflightKnowsRegionsWithoutZones(t *testing.T) {
	env := []string{"ALERT_EMAIL=a@example.com", "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "SOURCE_MONGODB_URI=mongodb://x"}
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
