package deploy

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
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

// files returns the texts of all files of the repository with one of the names, by path.
func files(t *testing.T, names ...string) map[string]string {
	tree.Depend()
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "node_modules" || name == ".git" || name == "testdata" || name == "bin") {
			return fs.SkipDir
		}
		if !entry.IsDir() && slices.Contains(names, entry.Name()) {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			found[filepath.ToSlash(name)] = read(t, filepath.ToSlash(name))
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
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
	infra := filepath.Join(root, "infra")
	require.NoError(t, filepath.WalkDir(infra, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".bicep" {
			return err
		}
		name, err := filepath.Rel(infra, path)
		found[filepath.ToSlash(name)] = template(t, filepath.ToSlash(name))
		return err
	}))
	require.Contains(t, sorted(found), "main.bicep")
	return found
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
