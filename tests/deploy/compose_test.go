package deploy

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

type composition struct {
	Services map[string]struct {
		Image       string
		Environment map[string]string
		Network     string `yaml:"network_mode"`
		Ports       []string
		Volumes     []string
		Build       struct{ Context, Dockerfile string }
		Deploy      struct{ Replicas int }
		StopGrace   string `yaml:"stop_grace_period"`
	}
}

// variableOfCompose is a variable with its default.
var variableOfCompose = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)

func compose(t *testing.T) composition {
	t.Helper()
	var c composition
	text := variableOfCompose.ReplaceAllString(read(t, "scripts/compose.yaml"), "$1")
	require.NoError(t, yaml.Unmarshal([]byte(text), &c))
	return c
}

// The services accept what the composition sets, and all of it is known to them.
func TestComposeSetsWhatTheServicesRead(t *testing.T) {
	c := compose(t)
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			app := c.Services[s.name]
			require.NotEmpty(t, app.Environment)
			require.Subset(t, sorted(settingsOf(s.config)), sorted(app.Environment), "what the %s reads", s.name)
			s.accepts(t, app.Environment)
			require.Equal(t, s.name+"/Dockerfile", app.Build.Dockerfile)
			require.Equal(t, "..", app.Build.Context, "the workspace, seen from scripts")
			require.Equal(t, "45s", app.StopGrace)
		})
	}
	require.Equal(t, 2, c.Services["producer"].Deploy.Replicas)
}

// The emulator's entities are in a file that the embedded stack loads as well: the same topic, the
// same sessions.
func TestTheEmulatorsEntitiesAreTheEmbeddedStacks(t *testing.T) {
	c := compose(t)
	require.Contains(t, c.Services["servicebus"].Volumes,
		"./servicebus-emulator.json:/ServiceBus_Emulator/ConfigFiles/Config.json:ro")
	text := read(t, "scripts/servicebus-emulator.json")
	entities, err := servicebus.ParseConfig([]byte(text))
	require.NoError(t, err)
	route, err := emulator.FindRoute(entities)
	require.NoError(t, err)
	require.Equal(t, c.Services["producer"].Environment["SERVICE_BUS_TOPIC"], route.Topic)
	require.Equal(t, c.Services["projector"].Environment["SERVICE_BUS_TOPIC"], route.Topic)
	require.Equal(t, c.Services["projector"].Environment["SERVICE_BUS_SUBSCRIPTION"], route.Subscription)
	require.Equal(t, emulator.Topic, route.Topic, "where make test-external sends")
	require.Equal(t, emulator.Subscription, route.Subscription)
	require.True(t, entities.Topics[0].RequiresDuplicateDetection)
	// Only the official emulator requires these.
	var raw struct {
		UserConfig struct {
			Namespaces []struct{ Name string }
			Logging    struct{ Type string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &raw))
	require.Equal(t, "sbemulatorns", raw.UserConfig.Namespaces[0].Name)
	require.Equal(t, "Console", raw.UserConfig.Logging.Type)

	s, err := emulator.New(t.Context(), emulator.Options{ServiceBus: &entities})
	require.NoError(t, err)
	require.Equal(t, route, s.Route)
	ctx, stop := context.WithCancel(t.Context())
	stop() // Run frees the ports
	require.NoError(t, s.Run(ctx))
}

// The emulator takes ten connections: each producer has one, each projector
// SERVICE_BUS_CONNECTIONS.
func TestTheEmulatorHasConnectionsForAll(t *testing.T) {
	c := compose(t)
	each, err := strconv.Atoi(c.Services["projector"].Environment["SERVICE_BUS_CONNECTIONS"])
	require.NoError(t, err)
	require.LessOrEqual(t, c.Services["producer"].Deploy.Replicas+each, 10)
}

func TestComposePinsImagesAndKeepsPortsLocal(t *testing.T) {
	c := compose(t)
	for name, s := range c.Services {
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: %s is open to the network", name, port)
		}
		if s.Build.Context != "" || name == "projection" { // whose image is given
			continue
		}
		_, tag, found := strings.Cut(s.Image[strings.LastIndex(s.Image, "/")+1:], ":")
		require.True(t, found && tag != "latest" && strings.ContainsAny(tag, "0123456789"), "%s: pin the tag of %s", name, s.Image)
	}
	var azurite struct{ Dependencies map[string]string }
	require.NoError(t, json.Unmarshal([]byte(read(t, "tests/emulator/azurite/package.json")), &azurite))
	require.Equal(t, "mcr.microsoft.com/azure-storage/azurite:"+azurite.Dependencies["azurite"], c.Services["azurite"].Image,
		"one version of Azurite, wherever it runs")
}

// A projection that is a program runs beside the projector, in its network, in Compose as in Azure,
// where the operators' job has it as well. PROJECTION_IMAGE alone adds it.
func TestAProgramRunsBesideTheProjector(t *testing.T) {
	const url = "http://127.0.0.1:8088"
	require.Equal(t, "service:projector", compose(t).Services["projection"].Network)
	require.Equal(t, "8088", compose(t).Services["projection"].Environment["PORT"])
	dir := t.TempDir()
	standIn(t, dir, "docker", `printf '%s %s %s\n' "$PROJECTION" "$PROJECTION_URL" "$PROJECTION_IMAGE" >>`+dir+`/calls`)
	standIn(t, dir, "curl", "")
	up := run(t, dir, []string{"PROJECTION=totals", "PROJECTION_IMAGE=x/totals:1"}, "bash", "scripts/compose.sh", "up")
	require.Zero(t, up.code, up.errOut)
	require.Regexp(t, "--profile services --profile program up.*\ntotals "+url+" x/totals:1\n", up.calls)

	for image, expected := range map[string]string{"": "", "x/totals:1": url} {
		azd := map[string]string{"PROJECTION": "totals", "PROJECTION_IMAGE": image, "SERVICE_BUS_TOPIC": "changes", "SERVICE_BUS_SUBSCRIPTION": "projector"}
		require.Equal(t, expected, deployedEnv(t, "projector", azd)["PROJECTION_URL"])
	}
	for _, file := range []string{"app/projection.bicep", "app/job.bicep"} {
		text := read(t, "infra/"+file)
		require.Contains(t, text, "image: projectionImage", file)
		require.Contains(t, text, "env: [{ name: 'PORT', value: '8088' }]", file)
	}
	operate, watch := jobs(t, "projector")["operate"], jobs(t, "projector")["watch"]
	require.Equal(t, "projectionImage", operate.At("projectionImage").Text)
	_, watched := watch.Field("projectionImage")
	require.False(t, watched, "status needs no program")

	image := find(t, "app/projector.bicep", "module", "versioned").Value.At("params", "projectionImage")
	for version, expected := range map[string]string{"1": "x/totals:1", "2": "x/totals:2"} {
		require.Equal(t, expected, evalValue(t, "app/projector.bicep", image, map[string]any{
			"version": version, "newest": "2", "programImage": "x/totals:2", "previousProjectionImage": "x/totals:1",
		}))
	}
}
