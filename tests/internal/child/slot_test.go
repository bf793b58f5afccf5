package child_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/tests/internal/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program writes a shell script that acts as a service.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "service")
	// A process that another test starts in the meantime would inherit the open file until it
	// executes, and a file that is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	return path
}

// run runs a slot until the test ends, and returns the events that it reports.
func run(t *testing.T, s *child.Slot) (ended <-chan string) {
	t.Helper()
	events := make(chan string, 16)
	s.OnEvent = func(event string) { events <- event }
	s.LogDir = t.TempDir()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		_, alive := s.PID()
		require.False(t, alive, "a process is left behind")
	})
	return events
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, 10*time.Millisecond)
}

func TestAnEndedProcessIsReplacedUnderANewName(t *testing.T) {
	t.Parallel()
	statuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"role":"leader","epoch":4,"ready_to_read":true,"leader":"x"}`))
	}))
	t.Cleanup(statuses.Close)
	names := filepath.Join(t.TempDir(), "names")
	s := &child.Slot{
		Name: "producer-1",
		Env:  []string{"NAMES=" + names, "ADDR=" + strings.TrimPrefix(statuses.URL, "http://")},
		Program: program(t, `echo "$CONTAINER_APP_REPLICA_NAME" >> "$NAMES"
echo '{"level":"INFO","msg":"serving health checks","addr":"'$ADDR'"}'
exec sleep 1000`),
	}
	ended := run(t, s)
	eventually(t, func() bool { status, fresh := s.Status(); return fresh && status.Leads() && status.Epoch == 4 })

	instance, err := s.Signal(syscall.SIGKILL)
	require.NoError(t, err)
	require.Equal(t, "producer-1", instance)
	require.Contains(t, <-ended, "producer-1 was killed")
	eventually(t, func() bool { _, fresh := s.Status(); return fresh })
	text, err := os.ReadFile(names)
	require.NoError(t, err)
	require.Equal(t, "producer-1\nproducer-1-r1\n", string(text))
}

func TestAProcessWithRefusedSettingsIsNotRestarted(t *testing.T) {
	t.Parallel()
	s := &child.Slot{
		Name: "producer-1", LogDir: t.TempDir(), OnEvent: func(string) {},
		Program: program(t, `echo "producer: MONGODB_URI: is required" >&2; exit 2`),
	}
	err := s.Run(t.Context())
	require.ErrorIs(t, err, child.ErrRefused)
	require.ErrorContains(t, err, "MONGODB_URI: is required")
}

func TestAFrozenProcessIsStoppedToo(t *testing.T) {
	t.Parallel()
	s := &child.Slot{Name: "producer-1", Program: program(t, `exec sleep 1000`)}
	run(t, s)
	eventually(t, func() bool { _, alive := s.PID(); return alive })
	_, err := s.Signal(syscall.SIGSTOP)
	require.NoError(t, err)
	_, fresh := s.Status()
	require.False(t, fresh, "one that never answered has no status")
}

func TestTheCallersOwnSettingsDoNotLeakIn(t *testing.T) {
	t.Setenv("PUBLISH_LANES", "1")
	out := filepath.Join(t.TempDir(), "env")
	s := &child.Slot{Name: "producer-1", Env: []string{"OUT=" + out}, Program: program(t, `env > "$OUT.new"; mv "$OUT.new" "$OUT"; exec sleep 1000`)}
	run(t, s)
	var text []byte
	eventually(t, func() bool {
		var err error
		text, err = os.ReadFile(out)
		return err == nil
	})
	require.NotContains(t, string(text), "PUBLISH_LANES")
	require.Contains(t, string(text), "CONTAINER_APP_REPLICA_NAME=producer-1")
}
