package producer_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// Every command of the producer prints JSON on request, and nothing else.
func TestEveryCommandOfTheProducerPrintsJSON(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		_, err := w.Blobs().CreateContainer(w.Context(), "copies", nil)
		require.NoError(t, err)
		p := startAndPublish(w, "a", nil, 20, 2)
		time.Sleep(5 * time.Second) // virtual
		middle := time.Now()
		w.InsertMany(10, 2)
		checkpointed(w, 30)
		printed := func(args ...string) (v map[string]any) {
			done := operate(w, append(args, "--json")...)
			done.succeeds()
			require.NoError(t, json.Unmarshal([]byte(done.Out), &v), done.Out)
			return v
		}
		require.Equal(t, "a", printed("status")["leader"])
		require.NotEmpty(t, printed("token", "show")["token"].(map[string]any)["_data"])
		require.Contains(t, printed("token", "copy", "--container", "copies")["copy"], "copies/shop.events.json.")
		require.Equal(t, false, printed("reading")["changed"])
		p.End()
		require.Equal(t, false, printed("lease", "break")["changed"])
		rewound := printed("token", "rewind", "--to", middle.Format(time.RFC3339))
		require.Equal(t, true, rewound["changed"])
		require.InDelta(t, 2, rewound["epoch"], 0)
		require.InDelta(t, 1, rewound["generation"], 0)
		require.Equal(t, "shop.events.json.epoch-1", rewound["old_record"])
		require.Equal(t, middle.UTC().Format(time.RFC3339), rewound["to"])
		require.Contains(t, rewound["message"], "publishes every change after this point again")
		require.InDelta(t, 3, printed("session-key", "bucket:8", "--drained")["epoch"], 0)
		token, err := json.Marshal(printed("token", "show")["token"])
		require.NoError(t, err)
		require.Equal(t, true, printed("token", "set", string(token))["changed"])

		var found []struct{ Check string }
		doctor := operate(w, "doctor", "--json") // which has a finding about the session key
		require.NoError(t, json.Unmarshal([]byte(doctor.Out), &found), doctor.Out)
		require.Greater(t, len(found), 5)
	})
}

// The help of every command that has a result describes how to get it as JSON.
func TestEveryHelpOfTheProducerNamesJSON(t *testing.T) {
	help := func(args ...string) string {
		var out, errOut bytes.Buffer
		require.Equal(t, 0, producer.Execute(t.Context(), args, nil, producer.Options{}, &out, &errOut, nil), errOut.String())
		return out.String()
	}
	named := 0
	_, commands, _ := strings.Cut(help("help"), "\n\n")
	commands, _, _ = strings.Cut(commands, "\n\n") // notes follow
	for line := range strings.Lines(commands) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "   ") || len(words) == 0 || strings.Contains("run completion help", words[0]) {
			continue
		}
		var command []string
		for _, word := range words {
			if word != strings.ToLower(word) || strings.HasPrefix(word, "[") || strings.HasPrefix(word, "-") || len(command) == 2 {
				break
			}
			command = append(command, word)
		}
		if !strings.Contains("token snapshot packs lease", command[0]) {
			command = command[:1]
		}
		require.Contains(t, help(append(command, "--help")...), "--json", "%v", command)
		named++
	}
	require.GreaterOrEqual(t, named, 12)
}
