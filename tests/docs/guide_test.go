package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

// The code in the guide to projections is that of the example, which is a module of its own.
func TestTheGuideShowsTheExample(t *testing.T) {
	tree.Depend()
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

// The projection on the front page is the one that runs as the example of package projection.
func TestTheFrontPageShowsTheExample(t *testing.T) {
	tree.Depend()
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("../../projector/projection/readme_test.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n```go\n")
	require.True(t, found)
	shown, _, found := strings.Cut(rest, "\nfunc main() { projector.Main(CustomerTotals{}) }\n```\n")
	require.True(t, found, "the program ends with main")
	require.Contains(t, string(example), "\n"+shown+"\n// A whole projection")
	require.LessOrEqual(t, strings.Count(string(page), "\n"), 90, "the front page is short")
}
