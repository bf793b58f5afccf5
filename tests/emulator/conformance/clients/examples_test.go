package clients

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// The examples of the README run unchanged, with the settings that sluice-emulator prints.
func TestExamples(t *testing.T) {
	t.Parallel()
	for language, of := range map[string]func(*testing.T) client{"JavaScript": javaScript, "Python": python} {
		t.Run(language, func(t *testing.T) {
			c := of(t)
			text, err := os.ReadFile("examples/session" + c.suffix)
			require.NoError(t, err)
			require.LessOrEqual(t, strings.Count(string(text), "\n"), 15, "short enough for a README")
			s := emulator.Start(t, emulator.Options{})
			require.Equal(t, "order-1: paid\n", string(c.run(t, s, "examples", "session")))
		})
	}
}
