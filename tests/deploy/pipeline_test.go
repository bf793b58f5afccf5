package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// azd lets every pull request and branch sign in as an identity that owns the subscription, and
// gives secrets to every workflow. The script revokes both, and narrows the roles once the resource
// group exists.
func TestThePipelineScriptRevokesExcessRights(t *testing.T) {
	for _, deployed := range []bool{false, true} {
		dir := t.TempDir()
		exists := map[bool]string{true: "true", false: "false"}[deployed]
		standIn(t, dir, "azd", `case "$*" in
*AZURE_SUBSCRIPTION_ID) echo sub-1 ;;
*AZURE_RESOURCE_GROUP) `+map[bool]string{true: "echo rg-x", false: "exit 1"}[deployed]+` ;;
*SOURCE_MONGODB_URI) echo akvs://sub-2/my-vault/my-secret ;;
*READ_MODEL_MONGODB_URI) exit 1 ;;
*DOCUMENTDB_PASSWORD) echo hunter2 ;;
esac`)
		standIn(t, dir, "gh", `case "$*" in
"repo view"*) echo owner/repo ;;
"variable get AZURE_CLIENT_ID") echo client-1 ;;
"secret set"*) echo "stdin: $(cat)" >>`+dir+`/secrets ;;
esac`)
		standIn(t, dir, "az", `case "$*" in
"identity list"*) printf 'msi-repo\trg-msi\tprincipal-1\n' ;;
*"federated-credential list"*) printf 'pr\nmain\n' ;;
"keyvault secret show"*) echo the-uri ;;
"group exists"*) echo `+exists+` ;;
esac`)
		r := run(t, dir, nil, "bash", "scripts/pipeline.sh")
		require.Zero(t, r.code, r.errOut)
		require.NotContains(t, r.out+r.errOut+r.calls, "hunter2", "secrets are in no argument and no output")
		calls := strings.Split(strings.TrimSpace(r.calls), "\n")
		place := func(part string) int {
			for i, call := range calls {
				if strings.Contains(call, part) {
					return i
				}
			}
			require.Fail(t, "no such call", "%s in %s", part, r.calls)
			return -1
		}
		require.Zero(t, place("azd pipeline config"), "azd grants everything again, so the rights are revoked afterwards")
		require.Less(t, place("federated-credential create"), place("federated-credential delete"), "a deployment can sign in throughout")
		require.Contains(t, calls[place("federated-credential create")], "--subject repo:owner/repo:environment:azure")
		require.Contains(t, calls[place("federated-credential list")], "ends_with(subject, ':pull_request') || contains(subject, ':ref:')")
		for _, name := range []string{"pr", "main"} {
			place("federated-credential delete --yes --subscription sub-1 --resource-group rg-msi --identity-name msi-repo --name " + name)
		}
		require.Contains(t, calls[place("keyvault secret show")], "--subscription sub-2 --vault-name my-vault --name my-secret")
		for _, name := range []string{"SOURCE_MONGODB_URI", "DOCUMENTDB_PASSWORD"} {
			require.Less(t, place("gh secret set "+name+" --env azure"), place("gh secret delete "+name))
		}
		require.NotContains(t, r.calls, "secret set READ_MODEL_MONGODB_URI")
		secrets, err := os.ReadFile(filepath.Join(dir, "secrets"))
		require.NoError(t, err)
		require.Equal(t, "stdin: the-uri\nstdin: hunter2\n", string(secrets))
		require.Equal(t, deployed, strings.Contains(r.calls, "role assignment delete"), "before the first deployment there is no group to narrow to")
		if deployed {
			for _, wide := range []string{"Contributor", "User Access Administrator"} {
				require.Less(t, place("--role "+wide+" --scope /subscriptions/sub-1/resourceGroups/rg-x"),
					place("role assignment delete --assignee principal-1 --role "+wide+" --scope /subscriptions/sub-1 "))
			}
		}
	}
}

// The preview uses the parameters that azd would use, and a mode that needs no right to write.
func TestWhatIfUsesTheParametersOfAzd(t *testing.T) {
	for _, program := range []string{"jq", "perl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("the script needs " + program)
		}
	}
	variables := map[string]string{
		"AZURE_ENV_NAME": "prod", "AZURE_LOCATION": "westeurope", "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events",
		"SERVICE_BUS_SKU": "Premium", "ALERT_EMAIL": "a b@example.com", "OPLOG_HOURS": "",
	}
	dir := t.TempDir()
	standIn(t, dir, "az", `for word in "$@"; do printf '%s\n' "$word"; done >`+dir+`/words`)
	var env []string
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	r := run(t, dir, env, "bash", "scripts/what-if.sh")
	require.Zero(t, r.code, r.errOut)
	text, err := os.ReadFile(filepath.Join(dir, "words"))
	require.NoError(t, err)
	var want, given []string
	delete(variables, "OPLOG_HOURS") // an empty value is the default
	for name, value := range parameterFile(t, "infra/main.parameters.json") {
		if value = fill(value, variables); value != "" {
			want = append(want, name+"="+value)
		}
	}
	for word := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		if strings.Contains(word, "=") {
			given = append(given, word)
		}
	}
	require.ElementsMatch(t, want, given)
	require.Contains(t, string(text), "--validation-level\nProviderNoRbac\n")
	require.Contains(t, read(t, ".github/workflows/azure-dev.yml"), "\n        run: scripts/what-if.sh\n")
}
