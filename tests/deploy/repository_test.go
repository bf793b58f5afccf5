package deploy

import (
	"encoding/json"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

const root = "../.."

func read(t *testing.T, path string) string {
	tree.Depend()
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(data)
}

// files returns the texts of the files in a folder of the repository that are wanted, by path.
// Links, test data and what is not in the repository are left out.
func files(t *testing.T, folder string, wanted func(name string) bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), folder, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules", "testdata"}, entry.Name()):
			return fs.SkipDir
		case entry.Type().IsRegular() && wanted(name):
			found[name] = read(t, name)
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}

// extension returns a function that reports whether a file's name has the extension.
func extension(of string) func(name string) bool {
	return func(name string) bool { return path.Ext(name) == of }
}

// template parses a file below infra.
func template(t *testing.T, path string) *bicep.File {
	t.Helper()
	f, err := bicep.ReadFile(filepath.Join(root, "infra", path))
	require.NoError(t, err)
	return f
}

// templates returns all files below infra, by their paths there.
func templates(t *testing.T) map[string]*bicep.File {
	t.Helper()
	found := map[string]*bicep.File{}
	for name := range files(t, "infra", extension(".bicep")) {
		name = strings.TrimPrefix(name, "infra/")
		found[name] = template(t, name)
	}
	require.Contains(t, sorted(found), "main.bicep")
	return found
}

// declared returns the declarations with the keyword in all files below infra, each with the path
// of its file.
func declared(t *testing.T, keyword string) iter.Seq2[string, bicep.Declaration] {
	t.Helper()
	all := templates(t)
	return func(yield func(string, bicep.Declaration) bool) {
		for file, f := range all {
			for _, d := range f.All(keyword) {
				if !yield(file, d) {
					return
				}
			}
		}
	}
}

// find returns a declaration of a file below infra.
func find(t *testing.T, file, keyword, name string) bicep.Declaration {
	t.Helper()
	d, found := template(t, file).Find(keyword, name)
	require.True(t, found, "%s has %s", file, name)
	return d
}

// eval returns the value of an expression in a file below infra.
func eval(t *testing.T, file, expression string, given map[string]any) any {
	t.Helper()
	return evalValue(t, file, bicep.Value{Text: expression}, given)
}

// evalValue returns the value of a field in a file below infra.
func evalValue(t *testing.T, file string, v bicep.Value, given map[string]any) any {
	t.Helper()
	is, err := template(t, file).EvalValue(v, given)
	require.NoError(t, err, file)
	return is
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// parameterFile returns the values of a parameters.json by name.
func parameterFile(t *testing.T, path string) map[string]string {
	t.Helper()
	var file struct {
		Parameters map[string]struct{ Value string }
	}
	d := json.NewDecoder(strings.NewReader(read(t, path)))
	require.NoError(t, d.Decode(&file), path)
	values := map[string]string{}
	for name, p := range file.Parameters {
		values[name] = p.Value
	}
	return values
}

var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)(?:=([^}]*))?\}`)

// fill replaces ${NAME} and ${NAME=default} as azd does.
func fill(value string, variables map[string]string) string {
	return variable.ReplaceAllStringFunc(value, func(use string) string {
		m := variable.FindStringSubmatch(use)
		if v, set := variables[m[1]]; set {
			return v
		}
		return m[2]
	})
}
