package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The load test's job is made from the template for jobs, with every parameter that it needs and no
// other one. It gets the given words, and is deleted at the end, whatever the result.
func TestTheLoadTestRunsAsAJob(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status string
		code   int
	}{
		{[]string{"--rate", "250", "--minutes=0.5"}, "Succeeded", 0},
		{[]string{"--rate", "250"}, "Failed", 1},
		{[]string{`--rate="1`}, "", 2},
	} {
		dir := t.TempDir()
		standIn(t, dir, "azd", `case $3 in AZURE_KEY_VAULT_NAME) echo kv-token ;; AZURE_CONTAINER_REGISTRY_ENDPOINT) echo cr.azurecr.io ;; BLOB_ACCOUNT_URL) echo https://stx.blob.core.windows.net ;; *) echo "$3" ;; esac`)
		standIn(t, dir, "go", `while [ "$1" != -o ]; do shift; done; echo program >"$2"`)
		standIn(t, dir, "az", azStandIn(dir, c.status, fmt.Sprint(c.code), "true")+`*"secret show"*) echo https://kv-token.vault.azure.net/secrets/loadtest-mongodb-uri/version ;;
*"acr build"*) while [ ! -d "$1" ]; do shift; done; cp "$1/Dockerfile" `+dir+`/image; [ -f "$1/load" ] ;;
*"deployment group create"*) while [ "$1" != --parameters ]; do shift; done; cp "${2#@}" `+dir+`/parameters ;;
*"metrics list"*) echo "ThrottledRequests 3" ;;
*" show "*) echo an-id ;;
esac`)
		r := run(t, dir, nil, append([]string{"bash", "scripts/loadtest.sh"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.errOut)
		if c.status == "" {
			require.Empty(t, r.calls)
			continue
		}
		require.Contains(t, r.out, "first line\nwhat it prints\n")
		require.Contains(t, r.out, "ThrottledRequests 3")
		text, err := os.ReadFile(filepath.Join(dir, "parameters"))
		require.NoError(t, err)
		var given struct {
			Parameters map[string]struct{ Value any }
		}
		require.NoError(t, json.Unmarshal(text, &given), "%s", text)
		needed := template(t, "app/job.bicep")
		for _, d := range needed.All("param") {
			if !d.HasValue {
				require.Contains(t, given.Parameters, d.Name)
			}
		}
		for name := range given.Parameters {
			_, found := needed.Find("param", name)
			require.True(t, found, "job.bicep has no parameter %s", name)
		}
		words := make([]any, 0, len(c.args))
		for _, word := range c.args {
			words = append(words, word)
		}
		require.Equal(t, words, given.Parameters["args"].Value)
		require.Equal(t, "https://kv-token.vault.azure.net/secrets/loadtest-mongodb-uri", given.Parameters["mongoSecretUri"].Value)
		image, err := os.ReadFile(filepath.Join(dir, "image"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(image), "FROM gcr.io/distroless/static"), "%s", image)
		require.Contains(t, string(image), "@sha256:")
		require.Contains(t, r.calls, "containerapp job delete --resource-group AZURE_RESOURCE_GROUP --name caj-load-token")
	}
}
