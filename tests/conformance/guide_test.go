package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the guide to projections tells its reader to write is what the example has, which is a module of its own.
func TestTheGuideShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../../projector/projection/README.md")
	require.NoError(t, err)
	for _, file := range []string{"main.go", "totals.go", "totals_test.go", "shop/main.go"} {
		code, err := os.ReadFile("../../projector/examples/customer-totals/" + file)
		require.NoError(t, err)
		require.Contains(t, string(page), "<!-- "+file+" -->\n```go\n"+string(code)+"```\n", "%s has changed: copy it to the guide", file)
		require.NotContains(t, string(page), "mongosh", "Go is all that the page needs")
		if file == "main.go" {
			require.LessOrEqual(t, strings.Count(string(code), "\n"), 20)
		}
	}
}
