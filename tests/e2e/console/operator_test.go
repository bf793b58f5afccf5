package console

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// awkward is an id that is markup, a flag, and no word of a shell.
const awkward = `--all "<b>7</b>"`

// An operator sees both sides with the commands, and replays a parked aggregate; a replica shows
// itself, and takes no action.
func TestAnOperatorReplaysWithCredentialsOfTheirOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts programs")
	}
	servers := emulator.Start(t, emulator.Options{})
	dir := t.TempDir()
	for _, name := range []string{"producer", "projector"} {
		require.NoError(t, child.BuildProgram(t.Context(), name+"/cmd/"+name, filepath.Join(dir, name)))
	}
	env := append(os.Environ(), "MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "BLOB_CONTAINER=sluice", "SERVICE_BUS_TOPIC="+servers.Route.Topic,
		"HTTP_ADDR=127.0.0.1:0", "HTTP_UI=true", "SHUTDOWN_TIMEOUT=10s")
	for _, name := range []string{emulator.EnvMongo, emulator.EnvServiceBus, emulator.EnvBlob} {
		env = append(env, name+"="+servers.Endpoint(name))
	}
	reading := append(env, "READ_MODEL_DATABASE=readmodel", "PROJECTION=timeline", "SERVICE_BUS_SUBSCRIPTION="+servers.Route.Subscription)

	replica := "http://" + begin(t, env, `"serving health checks".*"addr":"([^"]+)"`, dir+"/producer") + "/ui/"
	begin(t, reading, `"serving health checks".*"addr":"([^"]+)"`, dir+"/projector")
	producing := begin(t, env, `the console is at (\S+)`, dir+"/producer", "console", "--listen", "127.0.0.1:0")
	both := begin(t, reading, `the console is at (\S+)`, dir+"/projector", "console", "--listen", "127.0.0.1:0", "--with", strings.TrimSuffix(producing, "/"))

	until(t, replica+"status", func(v console.View) bool { return len(v.Streams) == 1 && v.Streams[0].Leader != "" })
	code, text, err := child.Command(t.Context(), reading, dir+"/projector", "parked", "park", "--reason", "<i>it counts twice</i>", "--", awkward)
	require.NoError(t, err)
	require.Zero(t, code, text)
	client, err := mongo.Connect(options.Client().ApplyURI(servers.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }) // the servers end as well
	for version := range int64(3) {
		_, err := client.Database("shop").Collection("events").InsertOne(t.Context(),
			bson.D{{Key: "aggregateId", Value: awkward}, {Key: "version", Value: version + 1}, {Key: "type", Value: "T"}})
		require.NoError(t, err)
	}
	until(t, both+"status", func(v console.View) bool {
		return len(v.Streams) == 1 && v.Streams[0].Leader != "" && v.Streams[0].Name == "shop.events" && len(v.Projections) == 1 &&
			v.Projections[0].Parked != nil && *v.Projections[0].Parked == 1 && v.Queue.DeadLettered["AggregateParked"] == 3
	})

	path := "parked/aggregate?aggregate=" + url.QueryEscape(awkward)
	page := get(t, both+path)
	require.Contains(t, page, "&lt;i&gt;it counts twice&lt;/i&gt;")
	require.Equal(t, 3, strings.Count(page, "not applied; a replay applies it"))
	trace := get(t, both+"trace?aggregate="+url.QueryEscape(awkward))
	require.Equal(t, 3, strings.Count(trace, `<span class="tag bad">parked</span>`))
	require.NotContains(t, get(t, replica+"parked"), "<form")

	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	require.Len(t, token, 2)
	form := url.Values{"token": {token[1]}, "confirm": {"replay"}, "aggregate": {awkward}, "back": {"/parked"}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, both+"parked/replay", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", strings.TrimSuffix(both, "/"))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, string(answer))
	require.Contains(t, string(answer), "3 events applied; it is not parked")
	require.Contains(t, string(answer), "No aggregate is parked")
}

// begin starts a program that ends with the test, and returns what the pattern finds in its output.
func begin(t *testing.T, env []string, pattern, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = env
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var reading sync.WaitGroup
	found := make(chan string, 1)
	reading.Go(func() {
		defer close(found)
		sought, sent := regexp.MustCompile(pattern), false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if match := sought.FindStringSubmatch(lines.Text()); match != nil && !sent {
				found <- match[1]
				sent = true
			}
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		reading.Wait()
		_ = cmd.Wait() // how it ends is tested elsewhere
	})
	value, ok := <-found
	require.True(t, ok, "%s %s ends at once", program, args)
	return value
}

func get(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", address, body)
	return string(body)
}

// until waits until what a console knows is right.
func until(t *testing.T, address string, right func(console.View) bool) {
	t.Helper()
	var text string
	require.Eventually(t, func() bool {
		text = get(t, address)
		var v console.View
		return json.Unmarshal([]byte(text), &v) == nil && right(v)
	}, 60*time.Second, 100*time.Millisecond, "%s: %s", address, lastOf{&text})
}

// lastOf is a text that is read when it is printed.
type lastOf struct{ text *string }

func (l lastOf) String() string { return *l.text }
