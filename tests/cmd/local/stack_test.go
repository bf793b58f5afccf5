//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// stackKept is the view of a user's application: the requested ports, and the data again after a
// restart.
func stackKept(t *testing.T, c command) {
	ports := freePorts(t, 4)
	args := []string{
		"--stack-only", "--mongo-snapshot", filepath.Join(t.TempDir(), "data"),
		"--ports", fmt.Sprintf("mongodb=%d,servicebus=%d,admin=%d,blob=%d", ports[0], ports[1], ports[2], ports[3]),
	}
	for restart := range 2 {
		cmd := c.command(t, args...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		settings := exported(t, out, 6)
		require.Contains(t, settings["SERVICE_BUS_CONNECTION_STRING"], fmt.Sprintf("//127.0.0.1:%d;", ports[1]))
		require.Contains(t, settings["BLOB_CONNECTION_STRING"], fmt.Sprintf("//127.0.0.1:%d/", ports[3]))

		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/health", ports[2]))
		require.NoError(t, err)
		var health struct{ Status string }
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&health))
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "healthy", health.Status)

		db, err := mongo.Connect(options.Client().ApplyURI(fmt.Sprintf("mongodb://127.0.0.1:%d/?replicaSet=rs0", ports[0])))
		require.NoError(t, err)
		kept := db.Database("app").Collection("kept")
		n, err := kept.CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		require.EqualValues(t, restart, n)
		_, err = kept.InsertOne(t.Context(), bson.D{{Key: "_id", Value: restart}})
		require.NoError(t, err)
		require.NoError(t, db.Disconnect(t.Context()))

		second := c.command(t, args...)
		text, err := second.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 2, second.ProcessState.ExitCode(), string(text))
		require.Contains(t, string(text), fmt.Sprintf("127.0.0.1:%d: another program listens there", ports[0]))

		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}
}

// exported returns the variables that a shell sets from so many lines, by name.
func exported(t *testing.T, out io.Reader, lines int) map[string]string {
	t.Helper()
	settings, read := map[string]string{}, bufio.NewScanner(out)
	for range lines {
		require.True(t, read.Scan(), "the output ends too early: %v", read.Err())
		line := read.Text()
		name, _, found := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		require.True(t, found, line)
		value, err := exec.CommandContext(t.Context(), "sh", "-c", line+"\nprintenv "+name).Output()
		require.NoError(t, err, line)
		settings[name] = strings.TrimSuffix(string(value), "\n")
	}
	return settings
}

// TestTheReadmesApplicationRuns runs the program of the README, word for word, against the stack as
// described there.
func TestTheReadmesApplicationRuns(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "emulator", "README.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\npackage main\n")
	require.True(t, found)
	program, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	main := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(main, []byte("package main\n"+program), 0o600))

	s := emulator.Start(t, emulator.Options{})
	cmd := exec.CommandContext(t.Context(), "go", "run", main)
	cmd.Env = append(os.Environ(), s.Env()...)
	cmd.Env = append(cmd.Env, "ADMIN="+s.Management(), "CGO_ENABLED=0") // like other programs that tests build
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "customer-7: placed\n", string(out))
	require.Contains(t, string(readme), "it prints `"+strings.TrimSpace(string(out))+"`")
}

// freePorts returns ports that were free a moment ago; all are taken at once, so that they differ.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	var config net.ListenConfig
	for range n {
		l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// fewConnections is what scripts/compose.sh runs against Microsoft's emulator, which takes ten: two
// of every service, while leaders and projectors are replaced.
func fewConnections(t *testing.T, c command) {
	s := emulator.Start(t, emulator.Options{ServiceBusConnections: 10})
	c.with(s.Settings()...).right(t, nil, "--external", "--input", firstLines(t, 1000), "--rate", "200", "--once", "--quiet",
		"--chaos", "kill-leader@1s,term-leader@2s,kill-projector@3s")
	require.Zero(t, s.ServiceBus.Refused())
}
