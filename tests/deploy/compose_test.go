package deploy

import (
	"context"
	"encoding/json"
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
		Ports       []string
		Volumes     []string
		Build       struct{ Context, Dockerfile string }
		Deploy      struct{ Replicas int }
		StopGrace   string `yaml:"stop_grace_period"`
	}
}

func compose(t *testing.T) composition {
	t.Helper()
	var c composition
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "scripts/compose.yaml")), &c))
	return c
}

// The services accept what the composition sets, and all of it is known to them.
func TestComposeSetsWhatTheServicesRead(t *testing.T) {
	c := compose(t)
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			clearSettings(t)
			known := settingsOf(s.config)
			app := c.Services[s.name]
			require.NotEmpty(t, app.Environment)
			for name, value := range app.Environment {
				_, ok := known[name]
				require.True(t, ok, "the %s does not read %s", s.name, name)
				t.Setenv(name, value)
			}
			require.NoError(t, s.load())
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
		if s.Build.Context != "" {
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
