package blob

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var named = regexp.MustCompile("`([^`]+)`")

// The chapter of the README names the operations that are served, and those that are refused, as
// the code does.
func TestTheReadmeNamesEveryOperation(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, chapter, found := strings.Cut(string(readme), "\n## Blob Storage\n")
	require.True(t, found)
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	served, refused := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(chapter) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for i, names := range []map[string]bool{served, refused} {
			for _, m := range named.FindAllStringSubmatch(cells[2+i], -1) {
				names[m[1]] = true
			}
		}
	}
	does, doesNot := map[string]bool{}, map[string]bool{account: true}
	for _, op := range operations {
		does[op.name] = true
	}
	for _, names := range []map[string]string{copying, headerless(foreign)} {
		for _, name := range names {
			doesNot[name] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(does)), slices.Sorted(maps.Keys(served)))
	require.Equal(t, slices.Sorted(maps.Keys(doesNot)), slices.Sorted(maps.Keys(refused)))
	for _, what := range foreignSAS {
		require.Contains(t, chapter, what)
	}
}

func headerless(routes map[route]string) map[string]string {
	out := map[string]string{}
	for r, name := range routes {
		out[r.level+r.method+r.comp] = name
	}
	return out
}
