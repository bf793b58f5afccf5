package images

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

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
	c := newContainer(t, "emulator", 10*time.Second)
	c.create(image, "--ports", "free", "--control", "0")
	settings := map[string]string{}
	until(t, "it logs its addresses", func() bool {
		for line := range strings.Lines(mustDocker(t, "logs", c.name)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			settings[key] = value
		}
		return settings["EMULATOR_CONTROL"] != ""
	})
	require.Equal(t, []string{nonroot}, c.users())

	resp, err := http.Get(settings["SERVICE_BUS_ADMINISTRATION"] + "/health")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	client, err := driver.Connect(options.Client().ApplyURI(settings["MONGODB_URI"]))
	require.NoError(t, err)
	require.NoError(t, client.Ping(t.Context(), nil))
	require.NoError(t, client.Disconnect(t.Context()))

	c.terminate()
}
