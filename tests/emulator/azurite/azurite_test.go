package azurite

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStartAnswersAndStopLeavesNothing(t *testing.T) {
	ForTest(t) // skips or fails if it is not installed
	p, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	require.Contains(t, p.ConnectionString(), "BlobEndpoint=http://"+p.Addr()+"/")

	require.NoError(t, p.Stop())
	require.NoError(t, p.Stop(), "twice is fine")
	_, err = net.Dial("tcp", p.Addr())
	require.Error(t, err, "the port is closed")
}

func TestRunEndsWithItsContext(t *testing.T) {
	ForTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	var conn string
	require.NoError(t, Run(ctx, Options{}, func(s string) { conn = s; cancel() }))
	require.Contains(t, conn, "BlobEndpoint=http://127.0.0.1:")
}

func TestRunReportsTheDeathOfAzurite(t *testing.T) {
	dir := fakeAzurite(t, `console.log("Azurite Blob service successfully listens on http://127.0.0.1:1")`)
	err := Run(t.Context(), Options{Dir: dir}, func(string) { t.Error("it never answered") })
	require.ErrorContains(t, err, "start azurite")
}

func TestAFailedStartReportsTheOutput(t *testing.T) {
	dir := fakeAzurite(t, `console.error("no memory today"); process.exit(3)`)
	_, err := Start(t.Context(), Options{Dir: dir})
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.ErrorContains(t, err, "no memory today")
}

func TestNotInstalled(t *testing.T) {
	_, err := Start(t.Context(), Options{Dir: t.TempDir()})
	require.ErrorIs(t, err, ErrNotInstalled)
	t.Setenv("PATH", "")
	_, err = Start(t.Context(), Options{Dir: fakeAzurite(t, "")})
	require.ErrorIs(t, err, ErrNotInstalled)
}

// fakeAzurite makes an installation with the given script.
func fakeAzurite(t *testing.T, script string) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil && !strings.Contains(t.Name(), "NotInstalled") {
		t.Skipf("without node: %v", err)
	}
	dir = t.TempDir()
	at := filepath.Join(dir, "node_modules", "azurite", "dist", "src", "blob")
	require.NoError(t, os.MkdirAll(at, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(at, "main.js"), []byte(script), 0o600))
	return dir
}
