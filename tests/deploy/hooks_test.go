package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hook runs a hook's script with stand-ins first on PATH, and returns both outputs and the exit
// code.
func hook(t *testing.T, dir, script string, env ...string) (out, errOut string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(root, "scripts", script))
	cmd.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "OPERATE_POLL=0"}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

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
			_, errOut, code := hook(t, dir, "predown.sh", c.env...)
			require.Equal(t, c.code, code, errOut)
			for _, text := range c.prints {
				require.Contains(t, errOut, text)
			}
			if c.code == 0 {
				require.Empty(t, errOut)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			require.NotContains(t, string(calls), "delete", "it deletes nothing")
		})
	}
}

// The address that MongoDB has to allow is printed before the apps need it.
func TestTheAddressIsPrintedBeforeItIsNeeded(t *testing.T) {
	out, _, code := hook(t, t.TempDir(), "postprovision.sh", "OUTBOUND_ADDRESS=203.0.113.7")
	require.Zero(t, code)
	require.Contains(t, out, "203.0.113.7")
	out, _, code = hook(t, t.TempDir(), "postprovision.sh")
	require.Zero(t, code)
	require.Empty(t, out, "without a network no address is printed")
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
		out, errOut, code := hook(t, dir, "postdeploy.sh", append(env, "PROJECTION_VERSIONS="+c.versions)...)
		require.Zero(t, code, errOut)
		require.Contains(t, out, "-g rg-x -n ca-producer --follow")
		require.Contains(t, out, "subscriptions/sub/resourceGroups/rg-x/overview")
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		require.NoError(t, err)
		require.Equal(t, c.doctors, strings.Count(string(calls), "job start"), "%s", calls)
		require.Equal(t, c.doctors == 0, strings.Contains(out, "scripts/operate.sh -g rg-x producer doctor"), out)
		require.Equal(t, c.code == "1", strings.Contains(errOut, "has found something"), errOut)
		require.Equal(t, c.versions == "1,2", strings.Contains(string(calls), `tags."sluice-version"=='2'`), "%s", calls)
	}
}

var (
	shSays  = regexp.MustCompile(`(?:echo|problem) ["']([^"']+)`)
	plain   = regexp.MustCompile(`[A-Za-z][a-z ,;:]{24,}`)
	verbsOf = func(text string) (verbs []string) {
		for _, command := range azCommands(text) {
			verb, _, _ := strings.Cut(command, " --")
			verbs = append(verbs, verb)
		}
		slices.Sort(verbs)
		return slices.Compact(verbs)
	}
)

// The hooks for Windows, which cannot be run here, ask az for the same and print the same.
func TestTheHooksAreTheSameOnWindows(t *testing.T) {
	for _, name := range []string{"predown", "postprovision", "postdeploy", "preflight"} {
		sh, ps1 := read(t, "scripts/"+name+".sh"), read(t, "scripts/"+name+".ps1")
		require.Equal(t, verbsOf(sh), verbsOf(ps1), name)
		checked := 0
		for _, said := range shSays.FindAllStringSubmatch(sh, -1) {
			for _, words := range plain.FindAllString(said[1], -1) {
				checked++
				require.Contains(t, ps1, words, "%s: the same on Windows", name)
			}
		}
		require.Positive(t, checked, name)
	}
}
