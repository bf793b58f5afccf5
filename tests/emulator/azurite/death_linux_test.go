package azurite

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test runs its own binary as a parent that starts Azurite and is killed with SIGKILL, which it
// cannot handle.
func TestAzuriteDiesWithAKilledParent(t *testing.T) {
	if os.Getenv("AZURITE_PARENT") == "yes" {
		p, err := Start(t.Context(), Options{})
		require.NoError(t, err)
		_, _ = os.Stdout.WriteString("addr " + p.Addr() + "\n")
		<-p.Done()
		return
	}
	ForTest(t)
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self, "-test.run=^TestAzuriteDiesWithAKilledParent$")
	parent.Env = append(os.Environ(), "AZURITE_PARENT=yes")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var addr string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if len(lines.Text()) > 5 && lines.Text()[:5] == "addr " {
			addr = lines.Text()[5:]
			break
		}
	}
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err, "Azurite runs")
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // an error: it was killed
	// The dead process's socket closes our connection, which is an event to wait for.
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "Azurite outlived its parent")
	require.NoError(t, conn.Close())
}
