package deploy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A user's repository deploys as ours does, from a copy of ours in its folder sluice, except for
// the projector's image.
func TestTheExampleIsDeployedLikeTheRepository(t *testing.T) {
	const example, copied = "projector/examples/customer-totals", "sluice/"
	text := read(t, example+"/azure.yaml")
	require.NoError(t, azureYaml(t, text))
	var ours, theirs project
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "azure.yaml")), &ours))
	require.NoError(t, yaml.Unmarshal([]byte(text), &theirs))

	require.Equal(t, ours.RequiredVersions, theirs.RequiredVersions)
	ours.Infra.Path = copied + ours.Infra.Path
	require.Equal(t, ours.Infra, theirs.Infra)
	producer, projector := ours.Services["producer"], ours.Services["projector"]
	producer.Project = "./" + filepath.Join(copied, producer.Project)
	require.Equal(t, producer, theirs.Services["producer"])
	projector.Project, projector.Docker.Context = ".", "."
	require.Equal(t, projector, theirs.Services["projector"])
	require.Len(t, theirs.Services, 2)
	require.Equal(t, ours.Pipeline, theirs.Pipeline)
	for name, hook := range ours.Hooks {
		if strings.HasPrefix(hook.Posix.Run, "scripts/") {
			hook.Posix.Run, hook.Windows.Run = copied+hook.Posix.Run, copied+hook.Windows.Run
		}
		require.Equal(t, hook, theirs.Hooks[name], name)
	}
	require.Len(t, theirs.Hooks, len(ours.Hooks))
}

// The example's image is ours with another program: the same Go, base, user and entry point.
func TestTheExamplesImageMatchesOurs(t *testing.T) {
	ours, theirs := read(t, "projector/Dockerfile"), read(t, "projector/examples/customer-totals/Dockerfile")
	shared := 0
	for line := range strings.Lines(ours) {
		word, _, _ := strings.Cut(line, " ")
		switch word {
		case "FROM", "USER", "EXPOSE", "ENTRYPOINT", "ARG", "WORKDIR":
			require.Contains(t, "\n"+theirs, "\n"+line)
			shared++
		}
	}
	require.GreaterOrEqual(t, shared, 7)
}
