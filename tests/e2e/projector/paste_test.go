package projector_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// words returns the arguments that a POSIX shell passes to the program projector if an operator
// pastes a line.
func words(w *world.World, line string) []string {
	w.Helper()
	script := `projector() { for word do printf '%s\0' "$word"; done; }` + "\n" + line + "\n"
	run := exec.CommandContext(w.Context(), "sh", "-c", script)
	run.Dir = w.TempDir()
	out, err := run.CombinedOutput()
	require.NoError(w, err, "%s: %s", line, out)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// A name comes from the source's documents. What a command prints about it must not control a
// terminal, and a printed command must concern this aggregate and no other: for an aggregate called
// --all it would otherwise replay everything.
func TestPrintedCommandsCanBePasted(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[0]
		names := []string{"--all", "-h", "it's", "$(touch was-here)", "a b", "red\x1b[31m\x07", "two\nlines", "\u202emoc.elpmaxe", "order-17"}
		w.StartProjector(s.settings)
		for i, name := range names {
			publish(w, event(name, 1, "Poison"))
			deadLettered(w, i+1)
		}
		list := exits(w, 0, operate(w, s, "parked", "list"))
		status := operate(w, s, "status")
		for _, shown := range []string{list.Out, status.Out} {
			require.NotRegexp(w, `[\x00-\x09\x0b-\x1f\x7f]|\x{202e}`, shown)
		}
		require.Equal(w, 4+len(names), strings.Count(list.Out, "\n"), "a line each: %s", list.Out)

		s.fixed.Store(true)
		for i, name := range names {
			show := exits(w, 0, operate(w, s, "parked", "show", "--", name))
			require.NotRegexp(w, `[\x00-\x09\x0b-\x1f\x7f]|\x{202e}`, show.Out)
			_, rest, _ := strings.Cut(show.Out, "Once the cause is fixed: ")
			replay, rest, _ := strings.Cut(rest, "\n")
			_, drop, _ := strings.Cut(rest, ": ")
			dropping := words(w, drop)
			require.Equal(w, []string{"parked", "drop", "--yes", "--message"}, dropping[:4])
			require.Equal(w, []string{"--", name}, dropping[5:])
			replayed := exits(w, 0, operate(w, s, words(w, replay)...))
			require.NotRegexp(w, `[\x00-\x09\x0b-\x1f\x7f]|\x{202e}`, replayed.Out)
			require.Len(w, deadLetters(w), len(names)-i-1, "only %q is replayed", name)
			require.Equal(w, 0, operate(w, s, words(w, replay)...).Code, "given again, it does no harm")
		}
	})
}
