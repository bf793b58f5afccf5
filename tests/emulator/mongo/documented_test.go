package mongo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
)

var (
	verb  = regexp.MustCompile(`%[a-z]`)
	named = regexp.MustCompile("`([^`]+)`")
)

// The README's table of refusals has a row for each that the code can give, in its words, and every
// name that is refused for what it is.
func TestTheReadmeListsEveryRefusal(t *testing.T) {
	refusals, options := map[string][]string{}, []string{}
	for _, folder := range []string{".", "../internal/query", "../internal/engine"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				switch {
				case ok && f.Sel.Name == "Unsupported":
					format := verb.ReplaceAllString(literal(t, call.Args[0]), "…")
					refusals[strings.ReplaceAll(format, "%%", "%")] = nil
				case ok && f.Sel.Name == "refuse":
					for _, arg := range call.Args {
						options = append(options, literal(t, arg))
					}
				}
				return true
			})
		}
	}
	maps.Copy(refusals, query.Foreign())
	delete(refusals, "the command explain")
	refusals["the command …"] = append(slices.Clone(foreignCommands), "explain")
	refusals["the … option …"] = options

	documented := map[string][]string{}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(readme), "\n### Every refusal\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n### ")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "does not support" {
			continue
		}
		documented[strings.TrimSpace(cells[1])] = nil
		for _, m := range named.FindAllStringSubmatch(cells[2], -1) {
			documented[strings.TrimSpace(cells[1])] = append(documented[strings.TrimSpace(cells[1])], m[1])
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(refusals)), slices.Sorted(maps.Keys(documented)))
	for what, names := range refusals {
		if len(names) > 0 {
			slices.Sort(names)
			require.Equal(t, slices.Compact(names), slices.Sorted(slices.Values(documented[what])), what)
		}
	}
}

func literal(t *testing.T, e ast.Expr) string {
	t.Helper()
	l, ok := e.(*ast.BasicLit)
	require.True(t, ok, "a refusal is no literal")
	text, err := strconv.Unquote(l.Value)
	require.NoError(t, err)
	return text
}
