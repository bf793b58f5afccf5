package images

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The test builds the image, connects to the servers with the settings that it prints, and stops
// it.
func TestTheEmbeddedServersServeFromTheirImage(t *testing.T) {
	image := build(t, checkout(t), "tests/emulator")
	size, err := strconv.Atoi(mustDocker(t, "image", "inspect", "-f", "{{.Size}}", image))
	require.NoError(t, err)
	require.Less(t, size, 25<<20)
	name := fmt.Sprintf("sluice-test-emulator-%d", os.Getpid())
	t.Cleanup(func() {
		_, err := docker(context.WithoutCancel(t.Context()), "rm", "--force", name)
		require.NoError(t, err)
	})
	mustDocker(t, "run", "--detach", "--name", name, "--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		image, "--ports", "free", "--control", "0")
	settings := map[string]string{}
	until(t, "it logs its addresses", func() bool {
		for line := range strings.Lines(mustDocker(t, "logs", name)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			settings[key] = value
		}
		return settings["EMULATOR_CONTROL"] != ""
	})
	require.Equal(t, []string{nonroot}, (&container{t: t, name: name}).users())

	resp, err := http.Get(settings["SERVICE_BUS_ADMINISTRATION"] + "/health")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	client, err := driver.Connect(options.Client().ApplyURI(settings["MONGODB_URI"]))
	require.NoError(t, err)
	require.NoError(t, client.Ping(t.Context(), nil))
	require.NoError(t, client.Disconnect(t.Context()))

	mustDocker(t, "stop", "--time", "10", name)
	require.Equal(t, "0", mustDocker(t, "inspect", "-f", "{{.State.ExitCode}}", name))
}
