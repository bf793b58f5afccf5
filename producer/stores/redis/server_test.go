package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// server is a redis-server of this machine.
type server struct {
	url, port string
	process   *exec.Cmd
	output    io.Reader
}

// durable are the options of an instance that doctor accepts.
var durable = []string{"--appendonly", "yes", "--maxmemory-policy", "noeviction"}

// start starts a redis-server, or skips the test if it is not installed; with CI=true the test
// fails.
func start(t *testing.T, options ...string) *server {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed, although scripts/redis.sh installs it with CI=true")
		}
		t.Skip("redis-server is not installed (scripts/redis.sh; Debian: apt-get install redis-server)")
	}
	for range 5 { // another process may take the port first
		port := freePort(t)
		args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", ""}, options...)
		process := exec.Command(program, args...)
		output, err := process.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, process.Start())
		if !ready(output) {
			_ = process.Wait()
			continue
		}
		s := &server{"redis://127.0.0.1:" + port, port, process, output}
		t.Cleanup(s.kill)
		return s
	}
	t.Fatal("redis-server does not start")
	return nil
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// ready waits until the server accepts connections. It returns false if the server has ended.
func ready(output io.Reader) bool {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return true
		}
	}
	return false
}

// kill ends the server as a crash does. A child of the server that rewrites its append-only file
// survives it, and has the same output: once that ends, no process writes into the folder any more.
func (s *server) kill() {
	_ = s.process.Process.Kill()
	_, _ = io.Copy(io.Discard, s.output)
	_ = s.process.Wait()
}

func (s *server) open(t *testing.T) *Store {
	t.Helper()
	opened, err := Open(s.url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	return opened
}

// send sends a command to the server on the store's connection.
func send(t *testing.T, s *Store, args ...any) string {
	t.Helper()
	r, err := s.client.Do(t.Context(), args...).Result()
	require.NoError(t, err)
	return fmt.Sprint(r)
}
