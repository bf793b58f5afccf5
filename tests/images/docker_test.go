package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

const (
	// nonroot is the user of the images and of their base image.
	nonroot = "65532"
	version = "1.2.3-test"
	// patience bounds every wait.
	patience = 60 * time.Second
)

// docker runs one command and returns its output.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0") // as the registry builds
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run docker %s: %w\n%s%s", args[0], err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String()), nil
}

func mustDocker(t *testing.T, args ...string) string {
	t.Helper()
	output, err := docker(t.Context(), args...)
	require.NoError(t, err)
	return output
}

// digest matches the digest of a base image.
var digest = regexp.MustCompile(`(?m)^(FROM \S+)@sha256:[0-9a-f]{64}`)

// build builds a service's image, which is removed after the test; its layers are kept for the next
// build.
func build(t *testing.T, root, service string) (image string) {
	t.Helper()
	image = fmt.Sprintf("sluice-test/%s:%d", service, os.Getpid())
	began := time.Now()
	dockerfile := filepath.Join(root, service, "Dockerfile")
	if os.Getenv("IMAGES_MADE") == "1" { // scripts/images.sh built the base images: they have their names, but no published digest
		text, err := os.ReadFile(dockerfile)
		require.NoError(t, err)
		dockerfile = filepath.Join(t.TempDir(), "Dockerfile")
		require.NoError(t, os.WriteFile(dockerfile, digest.ReplaceAll(text, []byte("$1")), 0o600))
	}
	// The machine's network: an engine without a bridge has no other.
	mustDocker(t, "build", "--network", "host", "-f", dockerfile, "--build-arg", "VERSION="+version, "-t", image, root)
	t.Cleanup(func() {
		_, err := docker(context.WithoutCancel(t.Context()), "image", "rm", "--no-prune", image)
		require.NoError(t, err)
	})
	t.Logf("%s: %s bytes, built in %s", service, mustDocker(t, "image", "inspect", "-f", "{{.Size}}", image), time.Since(began).Round(time.Second))
	return image
}

// container is a container of a service.
type container struct {
	t     *testing.T
	name  string
	grace time.Duration // how long the platform waits after SIGTERM
	at    string        // host:port of its health server
}

// run starts a service's container with its settings only.
func run(t *testing.T, root, service, image string, env ...string) *container {
	t.Helper()
	c := newContainer(t, service, grace(t, root, service))
	var args []string
	for _, kv := range append(env, "HTTP_ADDR=127.0.0.1:0", "CONTAINER_APP_REPLICA_NAME="+c.name) {
		args = append(args, "--env", kv)
	}
	c.create(append(args, image)...)
	c.serves()
	return c
}

func newContainer(t *testing.T, service string, grace time.Duration) *container {
	t.Helper()
	return &container{t: t, name: fmt.Sprintf("sluice-test-%s-%d", service, os.Getpid()), grace: grace}
}

// create creates and starts the container: without privileges, and with a read-only file system.
func (c *container) create(args ...string) {
	c.t.Helper()
	c.t.Cleanup(func() {
		ctx := context.WithoutCancel(c.t.Context())
		if c.t.Failed() {
			logs, err := docker(ctx, "logs", "--tail", "40", c.name)
			c.t.Logf("%s: %v\n%s", c.name, err, logs)
		}
		_, err := docker(ctx, "rm", "--force", c.name)
		require.NoError(c.t, err)
	})
	mustDocker(c.t, append([]string{
		"run", "--detach", "--name", c.name, "--network", "host", "--read-only", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges",
	}, args...)...)
}

// grace returns the deployment's grace period of a service.
func grace(t *testing.T, root, service string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "infra", "app", service+".bicep"))
	require.NoError(t, err)
	found := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindSubmatch(text)
	require.NotNil(t, found, "infra/app/%s.bicep does not set the grace period", service)
	seconds, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return time.Duration(seconds) * time.Second
}

// serves waits until the container's health server reports that it is alive and ready.
func (c *container) serves() {
	c.t.Helper()
	until(c.t, c.name+" logs its address", func() bool {
		for line := range strings.Lines(mustDocker(c.t, "logs", c.name)) {
			var record struct{ Msg, Addr string }
			if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "serving health checks" {
				c.at = record.Addr // the last one: a restart changes it
			}
		}
		return c.at != "" && c.answers("/livez")
	})
	until(c.t, c.name+" is ready", func() bool { return c.answers("/readyz") })
}

// get sends a request to the health server.
func (c *container) get(path string) (body []byte, ok bool) {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://"+c.at+path, http.NoBody)
	require.NoError(c.t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, false
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return body, err == nil && response.StatusCode == http.StatusOK
}

func (c *container) answers(path string) bool {
	_, ok := c.get(path)
	return ok
}

// status returns the service's status; zero if it does not answer.
func (c *container) status() (status child.Status) {
	body, ok := c.get("/status")
	if ok {
		require.NoError(c.t, json.Unmarshal(body, &status))
	}
	return status
}

// users returns the users of the container's processes, as the machine shows them.
func (c *container) users() (users []string) {
	c.t.Helper()
	for line := range strings.Lines(mustDocker(c.t, "top", c.name, "-eo", "pid,uid")) { // Docker asks for the first itself
		if process := strings.Fields(line); process[0] != "PID" {
			users = append(users, process[1])
		}
	}
	return users
}

// terminate sends SIGTERM, as the platform does, and requires a clean end.
func (c *container) terminate() {
	c.t.Helper()
	began := time.Now()
	mustDocker(c.t, "stop", "--time", strconv.Itoa(int(c.grace.Seconds())), c.name)
	took := time.Since(began)
	require.Equal(c.t, "0", mustDocker(c.t, "inspect", "-f", "{{.State.ExitCode}}", c.name), "the exit code")
	require.Less(c.t, took, c.grace, "it was killed")
	c.t.Logf("%s ended %s after SIGTERM", c.name, took.Round(10*time.Millisecond))
}

// restart starts the container again.
func (c *container) restart() {
	c.t.Helper()
	c.at = ""
	mustDocker(c.t, "start", c.name)
	c.serves()
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); {
		require.True(t, time.Now().Before(end), "not in %s: %s", patience, what)
		require.NoError(t, retry.Sleep(t.Context(), 100*time.Millisecond))
	}
}

// checkout returns the build's context. The test is skipped without IMAGES, since building takes
// minutes.
func checkout(t *testing.T) (root string) {
	t.Helper()
	if os.Getenv("IMAGES") == "" {
		t.Skip("make images builds both images and runs the pipeline with them; it needs Docker")
	}
	root, err := child.Checkout()
	require.NoError(t, err)
	mustDocker(t, "version")
	return root
}
