package deploy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A take-down stops before anything is deleted while the lock exists, and prints the commands with
// which to continue.
func TestATakeDownStopsWhileTheCheckpointsAreLocked(t *testing.T) {
	const lock = "/subscriptions/sub/resourceGroups/rg-x/providers/Microsoft.Storage/storageAccounts/stx/providers/Microsoft.Authorization/locks/checkpoints"
	env := []string{"AZURE_RESOURCE_GROUP=rg-x", "AZURE_SUBSCRIPTION_ID=sub"}
	for _, c := range []struct {
		what, az string
		env      []string
		code     int
		prints   []string
	}{
		{"locked", "echo " + lock, env, 1, []string{"  az lock delete --ids " + lock + "\n  azd down\n  azd env set KEY_VAULT_RECOVER true"}},
		{"locked, and the vault can be purged", "echo " + lock, append(env, "KEY_VAULT_PURGE_PROTECTION=false"), 1, []string{"  az lock delete --ids " + lock + "\n  azd down --purge\n"}},
		{"not locked", "", env, 0, nil},
		{"nothing was provisioned", "echo " + lock, nil, 0, nil},
		{"no answer", "exit 1", env, 1, []string{"cannot be read here", "  az lock delete --ids " + strings.Replace(lock, "stx", "ACCOUNT", 1)}},
		{"no answer, and no lock by the setting", "exit 1", append(env, "DELETE_LOCK=false"), 0, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			standIn(t, dir, "az", c.az)
			r := run(t, dir, c.env, "sh", "scripts/predown.sh")
			require.Equal(t, c.code, r.code, r.errOut)
			for _, text := range c.prints {
				require.Contains(t, r.errOut, text)
			}
			if c.code == 0 {
				require.Empty(t, r.errOut)
			}
			require.NotContains(t, r.calls, "delete", "it deletes nothing")
		})
	}
}

// The address that MongoDB has to allow is printed before the apps need it.
func TestTheAddressIsPrintedBeforeItIsNeeded(t *testing.T) {
	r := run(t, t.TempDir(), []string{"OUTBOUND_ADDRESS=203.0.113.7"}, "sh", "scripts/postprovision.sh")
	require.Zero(t, r.code)
	require.Contains(t, r.out, "203.0.113.7")
	require.Zero(t, run(t, t.TempDir(), nil, "sh", "scripts/postprovision.sh"), "without a network no address is printed")
}

// After a deployment both doctors run if their answers can be read, that of the projector for each
// version. Their findings do not fail the deployment, which is finished.
func TestADeploymentEndsWithBothDoctors(t *testing.T) {
	env := []string{"AZURE_RESOURCE_GROUP=rg-x", "AZURE_SUBSCRIPTION_ID=sub", "SERVICE_PRODUCER_NAME=ca-producer", "BLOB_ACCOUNT_URL=https://stx.blob.core.windows.net"}
	for _, c := range []struct {
		blobs, code, versions string
		doctors               int
	}{{"true", "0", "", 2}, {"true", "1", "1", 2}, {"true", "0", "1,2", 3}, {"refused", "0", "", 0}} {
		dir := t.TempDir()
		list := map[string]string{"true": "exit 0", "refused": "exit 1"}[c.blobs]
		standIn(t, dir, "az", `case "$*" in *"blob list"*) `+list+` ;; esac
`+azStandIn(dir, "Succeeded", c.code, c.blobs)+"esac")
		r := run(t, dir, append(env, "PROJECTION_VERSIONS="+c.versions), "sh", "scripts/postdeploy.sh")
		require.Zero(t, r.code, r.errOut)
		require.Contains(t, r.out, "-g rg-x -n ca-producer --follow")
		require.Contains(t, r.out, "subscriptions/sub/resourceGroups/rg-x/overview")
		require.Equal(t, c.doctors, strings.Count(r.calls, "job start"), r.calls)
		require.Equal(t, c.doctors == 0, strings.Contains(r.out, "scripts/operate.sh -g rg-x producer doctor"), r.out)
		require.Equal(t, c.code == "1", strings.Contains(r.errOut, "has found something"), r.errOut)
		require.Equal(t, c.versions == "1,2", strings.Contains(r.calls, `tags."sluice-version"=='2'`), r.calls)
	}
}

var (
	azCommand = regexp.MustCompile(`\baz ((?:[a-z-]+ )+)`)
	shSays    = regexp.MustCompile(`(?:echo|problem) ["']([^"']+)`)
	plain     = regexp.MustCompile(`[A-Za-z][a-z ,;:]{11,}`)
	shellOnly = regexp.MustCompile(`\$\w+|\w+\.sh`)
)

// azVerbs returns the commands of az in a script, without their options, by name.
func azVerbs(script string) map[string]bool {
	verbs := map[string]bool{}
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			for _, m := range azCommand.FindAllStringSubmatch(line, -1) {
				verbs[strings.TrimSpace(m[1])] = true
			}
		}
	}
	return verbs
}

// The scripts for Windows, which cannot be run here, ask az for the same and print the same.
func TestTheScriptsAreTheSameOnWindows(t *testing.T) {
	for name, files := range map[string][]string{
		"predown": nil, "postprovision": nil, "postdeploy": nil, "preflight": nil, "operate": {"answer"},
	} {
		sh, ps1 := read(t, "scripts/"+name+".sh"), read(t, "scripts/"+name+".ps1")
		for _, sourced := range files {
			sh += read(t, "scripts/"+sourced+".sh")
		}
		require.Equal(t, azVerbs(sh), azVerbs(ps1), name)
		checked := 0
		for _, message := range shSays.FindAllStringSubmatch(sh, -1) {
			for _, words := range plain.FindAllString(shellOnly.ReplaceAllString(message[1], "|"), -1) {
				checked++
				require.Contains(t, ps1, words, "%s: the same on Windows", name)
			}
		}
		require.Positive(t, checked, name)
	}
}
