package deploy

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// azureYaml validates a text against testdata/azure.yaml.schema.json.
func azureYaml(t *testing.T, text string) error {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("testdata/azure.yaml.schema.json")
	require.NoError(t, err)
	var document any
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	return schema.Validate(document)
}

func TestAzureYamlFollowsItsSchema(t *testing.T) {
	require.NoError(t, azureYaml(t, read(t, "azure.yaml")))
}

// azd would find each of these mistakes late or never.
func TestAzureYamlSchemaRefusesMistakes(t *testing.T) {
	good := read(t, "azure.yaml")
	for _, test := range []struct{ name, old, bad string }{
		{"a name azd refuses", "name: sluice\n", "name: Sluice_\n"},
		{"no services", "services:\n", "service:\n"},
		{"a misspelt key of a service", "    module: app/producer\n", "    modul: app/producer\n"},
		{"another host", "    host: containerapp\n", "    host: containerapps\n"},
		{"remote build outside docker", "    project: ./producer\n", "    project: ./producer\n    remoteBuild: true\n"},
		{"a remote build that is text", "remoteBuild: true # in", "remoteBuild: \"yes\" # in"},
		{"build arguments as a map", "        - VERSION=${SLUICE_VERSION}\n", "          VERSION: ${SLUICE_VERSION}\n"},
		{"an image beside the project", "    project: ./producer\n", "    project: ./producer\n    image: x\n"},
		{"neither project nor image", "    project: ./producer\n", ""},
		{"a hook of no event", "  preprovision:\n", "  beforeprovision:\n"},
		{"a shell azd does not have", "      shell: sh\n", "      shell: bash\n"},
		{"a shell without a script", "      run: scripts/preflight.sh\n", ""},
		{"a script beside those for the systems", "  preprovision:\n", "  preprovision:\n    run: x\n"},
		{"a pipeline that azd does not know", "provider: github", "provider: gitlab"},
		{"variables under another name", "  variables:\n", "  vars:\n"},
		{"another provider", "provider: bicep", "provider: terraform"},
		{"a version that is no range", `azd: ">= 1.25.0"`, `azd: "1.25"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Contains(t, good, test.old, "azure.yaml has changed: change this test with it")
			require.Error(t, azureYaml(t, strings.Replace(good, test.old, test.bad, 1)))
		})
	}
}
