package projector_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// Every command of the projector prints JSON on request, and nothing else.
func TestEveryCommandOfTheProjectorPrintsJSON(t *testing.T) {
	s := shapes()[0]
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"))
		publish(w, event("b", 1, "Poison"))
		w.Completed(1)
		deadLettered(w, 3)
		p.MustEnd()
		print := func(code int, v any, args ...string) {
			w.Helper()
			done := w.OperateProjector(s.settings, append(args, "--json")...)
			require.Equal(w, code, done.Code, "%s%s", done.Out, done.Err)
			require.NoError(w, json.Unmarshal([]byte(done.Out), v), done.Out)
		}
		type object = map[string]any
		var status, left, shown, stuck, dropped, verified object
		print(0, &status, "status")
		require.InDelta(w, 2, status["parked"], 0)
		print(1, &left, "status", "--drained")
		require.Equal(w, false, left["drained"])
		require.Len(w, left["left"], 2)
		var list []object
		print(0, &list, "parked", "list")
		require.Len(w, list, 2)
		print(0, &shown, "parked", "show", "a")
		require.Equal(w, "ProjectionFailed", shown["reason"])
		print(1, &stuck, "parked", "replay", "--all")
		require.Len(w, stuck["aggregates"], 2)
		require.Equal(w, "ProjectionFailed", stuck["aggregates"].([]any)[0].(object)["stuck"].(object)["reason"])
		print(0, &dropped, "parked", "drop", "a", "--yes")
		require.Equal(w, object{"aggregate": "a", "applied": 1.0, "applied_before": 0.0, "dropped": true, "stuck": nil, "foreign": 0.0}, dropped["aggregates"].([]any)[0])
		require.InDelta(w, 2, dropped["removed"], 0)
		var none, again object
		print(0, &none, "parked", "drop", "b", "--yes")
		print(0, &again, "parked", "replay", "--all")
		require.Empty(w, again["aggregates"])
		print(0, &left, "status", "--drained")
		require.Equal(w, true, left["drained"])
		print(1, &verified, "verify", "--wait=0s") // the source is empty
		require.InDelta(w, 0, verified["events"], 0)
		var found []object
		print(0, &found, "doctor")
		require.Greater(w, len(found), 3)
	})
}

// The help of every command that has a result describes how to get it as JSON.
func TestEveryHelpOfTheProjectorNamesJSON(t *testing.T) {
	help := func(args ...string) string {
		var out, errOut bytes.Buffer
		require.Equal(t, 0, projector.Execute(t.Context(), args, nil, projector.Options{}, &out, &errOut, nil), errOut.String())
		return out.String()
	}
	named := 0
	for line := range strings.Lines(help("help")) {
		words := strings.Fields(line)
		if strings.HasPrefix(line, "`") {
			break // the commands end; the sentences behind them may be folded
		}
		if !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "   ") || strings.Contains("run check console completion help", words[0]) {
			continue
		}
		command := words[:1]
		if command[0] == "parked" {
			command = words[:2]
		}
		require.Contains(t, help(append(slices.Clone(command), "--help")...), "--json", "%v", command)
		named++
	}
	require.GreaterOrEqual(t, named, 9)
}
