package programs

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// The programs are built once, for all trials.
func TestThePrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts programs")
	}
	b := open(t)
	for name, test := range map[string]func(*testing.T, *bench){
		"report what is wrong":                       reportWhatIsWrong,
		"show on a terminal how far their doctor is": showHowFar,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			test(t, b)
		})
	}
}

// Each program reports what is wrong and what to do, with the right exit code.
func reportWhatIsWrong(t *testing.T, b *bench) {
	for i, c := range append(configurations(), inputs()...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b.play(t, i, c)
		})
	}
	t.Run("times that are too short for the way to storage", func(t *testing.T) {
		t.Parallel()
		far := b.faraway(t, 200*time.Millisecond)
		far.play(t, 0, tried{
			program: "producer", args: []string{"doctor"}, code: 1, set: map[string]string{"FENCE_AFTER": "1500ms", "BLOB_CONTAINER": "checkpoints"},
			want: `PROBLEM +leadership times +of [0-9]+ heartbeats, .* HEARTBEAT_INTERVAL=1s tolerate at most 156ms, .*To fix it: set FENCE_AFTER=`,
		})
	})
}

// On a terminal slow commands show their progress, and output through a pipe contains none of it.
func showHowFar(t *testing.T, b *bench) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal can be made here:", err)
	}
	far := b.faraway(t, 60*time.Millisecond) // the rehearsal takes its full time
	doctor := func(stderr io.Writer) {
		cmd := exec.CommandContext(t.Context(), b.program("producer"), "doctor")
		cmd.Env = append(far.environment(0, tried{program: "producer", set: map[string]string{"BLOB_CONTAINER": "checkpoints"}}), "TERM=xterm")
		cmd.Stderr = stderr
		out, err := cmd.Output()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "leadership times")
		require.NotContains(t, string(out), "\x1b")
	}
	var piped bytes.Buffer
	doctor(&piped)
	require.Empty(t, piped.String())

	doctor(terminal) // which echoes its input
	_, err = terminal.WriteString("over\n")
	require.NoError(t, err)
	shown, sent := "", bufio.NewReader(terminal)
	for !strings.Contains(shown, "over") {
		line, err := sent.ReadString('\n')
		require.NoError(t, err)
		shown += line
	}
	require.Regexp(t, `doctor: heartbeats \[=+ +\] [1-9]\d* of 100, \d+/s, \d+s to go`, shown)
	require.NoError(t, terminal.Close())
}

// faraway returns the same programs, with services a round trip away.
func (b *bench) faraway(t *testing.T, roundTrip time.Duration) *bench {
	t.Helper()
	far := serve(t, b.dir, roundTrip)
	blobs, err := azblob.NewClientFromConnectionString(far.stack.Endpoint(stack.EnvBlob), nil)
	require.NoError(t, err)
	_, err = blobs.CreateContainer(t.Context(), "checkpoints", nil)
	require.NoError(t, err)
	return far
}
