package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/answer"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

// lastRecord returns the last line of a log.
func lastRecord(t *testing.T, log string) (record struct {
	Msg  string
	Code int
},
) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &record), log)
	return record
}

// A command that runs as a job keeps its output and its exit code in storage, even if it fails. The
// log contains the output as well, and its last record the exit code.
func TestACommandStoresItsAnswer(t *testing.T) {
	servers := emulator.Start(t, emulator.Options{})
	t.Setenv(emulator.EnvBlob, servers.Endpoint(emulator.EnvBlob))
	client, err := azblob.NewClientFromConnectionString(servers.Endpoint(emulator.EnvBlob), nil)
	require.NoError(t, err)
	for _, code := range []int{0, 1, 2} {
		name := fmt.Sprintf("answer-%d", code)
		t.Setenv("COMMAND_ANSWER", "command-results/"+name)
		var out, errOut bytes.Buffer
		require.Equal(t, code, answer.Kept(t.Context(), "producer", &out, &errOut, func(out, errOut io.Writer) int {
			fmt.Fprintln(out, "the answer")
			if code != 0 {
				fmt.Fprintln(errOut, "what is wrong")
			}
			return code
		}))
		kept := func(suffix string) string {
			response, err := client.DownloadStream(t.Context(), "command-results", name+suffix, nil)
			require.NoError(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			return string(text)
		}
		require.Equal(t, "the answer\n", kept(".out"), "without the log's records")
		require.Equal(t, errOut.String(), kept(".err"))
		require.Equal(t, fmt.Sprintln(code), kept(".code"))
		require.Equal(t, answer.EndMessage, lastRecord(t, out.String()).Msg)
		require.Equal(t, code, lastRecord(t, out.String()).Code)
	}
}

// A command does its work even if its answer cannot be stored; the answer is in the log.
func TestACommandWorksWithoutStorage(t *testing.T) {
	for _, where := range []string{"command-results/x", "no-name", "A wrong container/x"} {
		t.Setenv("COMMAND_ANSWER", where)
		var out bytes.Buffer
		require.Equal(t, 1, answer.Kept(context.WithoutCancel(t.Context()), "producer", &out, io.Discard, func(out, _ io.Writer) int {
			fmt.Fprintln(out, "the answer")
			return 1
		}))
		require.Contains(t, out.String(), "the answer\n")
		require.Contains(t, out.String(), `"the answer is not kept"`)
		require.Equal(t, answer.EndMessage, lastRecord(t, out.String()).Msg)
	}
}

// Without the setting the output of a command is unchanged.
func TestACommandOutsideAJobStoresNothing(t *testing.T) {
	t.Setenv("COMMAND_ANSWER", "")
	var out bytes.Buffer
	require.Equal(t, 0, answer.Kept(t.Context(), "producer", &out, io.Discard, func(out, _ io.Writer) int {
		fmt.Fprintln(out, "the answer")
		return 0
	}))
	require.Equal(t, "the answer\n", out.String())
}
