package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// SetVersion makes the modules in the working tree require each other in a version that is to be
// released, in go.mod, go.sum and go.work. After that the content of a module's zip is final, and
// so are the hashes of it in the go.sum of the modules that require it.
func SetVersion(root, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("set version: %q is no version such as v1.2.3", version)
	}
	scratch, err := os.MkdirTemp("", "modules")
	if err != nil {
		return fmt.Errorf("set version: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	p := &Proxy{Dir: scratch, Version: version, sums: map[string][2]string{}}
	for _, folder := range All() {
		if err := p.setRequired(filepath.Join(root, filepath.FromSlash(folder))); err != nil {
			return err
		}
		m, err := read(root, folder, "")
		if err != nil {
			return err
		}
		if err := p.write(m); err != nil {
			return err
		}
	}
	return setWorkspace(filepath.Join(root, "go.work"), version)
}

// setRequired writes the go.mod and go.sum of a module whose requirements have been packed.
func (p *Proxy) setRequired(dir string) error {
	name := filepath.Join(dir, "go.mod")
	mod, err := require(name, p.Version)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(name, mod, nil)
	if err != nil {
		return err // it names the file
	}
	sumName := filepath.Join(dir, "go.sum")
	sum, err := os.ReadFile(sumName)
	if err != nil {
		return fmt.Errorf("set version: %w", err)
	}
	lines := strings.SplitAfter(string(foreign(sum)), "\n")
	for _, r := range file.Require {
		if ours(r.Mod.Path) {
			lines = append(lines, p.sum(r.Mod.Path)...)
		}
	}
	slices.Sort(lines)
	return errors.Join(overwrite(name, mod), overwrite(sumName, []byte(strings.Join(lines, ""))))
}

// setWorkspace writes into go.work where the modules of the version are.
func setWorkspace(name, version string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("set version: %w", err)
	}
	file, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return err // it names the file
	}
	for _, r := range file.Replace {
		if i := slices.Index(r.Syntax.Token, r.Old.Version); i >= 0 && ours(r.Old.Path) {
			r.Syntax.Token[i] = version
		}
	}
	return overwrite(name, modfile.Format(file.Syntax))
}

// overwrite replaces the content of a file of the repository.
func overwrite(name string, text []byte) error {
	if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // everybody may read the repository
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
