package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// project is the part of azure.yaml that we use. The schema checks its form (azd_schema_test.go).
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
