package projection_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the page tells its reader to write is what the example has, which is built and tested as a module of its own.
func TestThePageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, file := range []string{"main.go", "totals.go", "totals_test.go"} {
		code, err := os.ReadFile("../examples/customer-totals/" + file)
		require.NoError(t, err)
		require.Contains(t, string(page), "<!-- "+file+" -->\n```go\n"+string(code)+"```\n", "%s has changed: copy it to the page", file)
		if file == "main.go" {
			require.LessOrEqual(t, strings.Count(string(code), "\n"), 20)
		}
	}
}
