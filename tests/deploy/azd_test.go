package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// project is the part of azure.yaml that we use. The schema checks its form.
type project struct {
	RequiredVersions struct{ Azd string }                    `yaml:"requiredVersions"`
	Infra            struct{ Provider, Path, Module string } `yaml:"infra"`
	Services         map[string]struct {
		Project  string
		Language string
		Host     string
		Module   string
		Docker   struct {
			Path        string
			Context     string
			RemoteBuild bool     `yaml:"remoteBuild"`
			BuildArgs   []string `yaml:"buildArgs"`
		}
	} `yaml:"services"`
	Pipeline struct {
		Provider           string
		Variables, Secrets []string
	}
	Hooks map[string]struct{ Posix, Windows struct{ Shell, Run string } } `yaml:"hooks"`
}

func TestAzureYamlNamesExistingFiles(t *testing.T) {
	text := read(t, "azure.yaml")
	require.True(t, strings.HasPrefix(text, "# yaml-language-server: $schema=https://raw.githubusercontent.com/Azure/azure-dev/main/schemas/v1.0/azure.yaml.json\n"))
	var p project
	require.NoError(t, yaml.Unmarshal([]byte(text), &p))

	require.Equal(t, ">= 1.25.0", p.RequiredVersions.Azd)
	require.FileExists(t, filepath.Join(root, p.Infra.Path, p.Infra.Module+".bicep"))
	require.FileExists(t, filepath.Join(root, p.Infra.Path, p.Infra.Module+".parameters.json"))
	require.Len(t, p.Services, len(services))
	for _, known := range services {
		s := p.Services[known.name]
		require.Equal(t, "docker", s.Language, known.name)
		require.Equal(t, "containerapp", s.Host, known.name)
		require.FileExists(t, filepath.Join(root, s.Project, s.Docker.Path))
		require.FileExists(t, filepath.Join(root, s.Project, s.Docker.Context, "go.work"), "the context is the workspace")
		require.True(t, s.Docker.RemoteBuild)
		// Both files make azd deploy the module; without one of them it would edit the app itself,
		// without our settings.
		require.FileExists(t, filepath.Join(root, p.Infra.Path, s.Module+".bicep"))
		require.FileExists(t, filepath.Join(root, p.Infra.Path, s.Module+".parameters.json"))
		for _, arg := range s.Docker.BuildArgs {
			name, _, _ := strings.Cut(arg, "=")
			require.Contains(t, read(t, known.name+"/Dockerfile"), "\nARG "+name+"=", "build argument %s", name)
		}
		// A file in infra itself with a service's name would silently make azd deploy differently.
		require.NoFileExists(t, filepath.Join(root, p.Infra.Path, known.name+".bicep"))
	}
	for _, hook := range p.Hooks {
		require.Equal(t, "sh", hook.Posix.Shell)
		require.Equal(t, "pwsh", hook.Windows.Shell)
		if strings.HasPrefix(hook.Posix.Run, "scripts/") {
			info, err := os.Stat(filepath.Join(root, hook.Posix.Run))
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&0o100, "%s is executable", hook.Posix.Run)
			require.FileExists(t, filepath.Join(root, hook.Windows.Run))
		}
	}
}

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
