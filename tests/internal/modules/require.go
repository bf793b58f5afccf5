package modules

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/modfile"
)

// ours reports whether a module, or a line about one, is of this repository.
func ours(path string) bool { return strings.HasPrefix(path, Base+"/") }

// require returns a go.mod in which every module of this repository is required in the version; if
// the version is empty, as it is.
func require(path, version string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if version == "" {
		return text, nil
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return nil, err // it names the file
	}
	for _, r := range file.Require {
		if !ours(r.Mod.Path) {
			continue
		}
		if err := file.AddRequire(r.Mod.Path, version); err != nil {
			return nil, fmt.Errorf("set version in %s: %w", path, err)
		}
	}
	file.Cleanup()
	out, err := file.Format()
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", path, err)
	}
	return out, nil
}

// foreign returns the lines of a go.sum that are not about this repository's modules: the hashes of
// those change with every line of code, and only a release writes them.
func foreign(sum []byte) []byte {
	var out []byte
	for line := range bytes.Lines(sum) {
		if !ours(string(line)) {
			out = append(out, line...)
		}
	}
	return out
}
