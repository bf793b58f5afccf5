package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// ErrUntidy is a go.mod or go.sum that go mod tidy would change.
var ErrUntidy = errors.New("not tidy")

// Check verifies a module as a user without this workspace gets it: its go.mod and go.sum are tidy,
// and it builds with them. With fix they are made tidy. Meanwhile the modules of this repository
// require each other in the proxy's version.
func (p *Proxy) Check(ctx context.Context, root, folder string, fix bool) error {
	dir := filepath.Join(root, filepath.FromSlash(folder))
	scratch, err := os.MkdirTemp("", "modules")
	if err != nil {
		return fmt.Errorf("check %s: %w", folder, err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	modFile, sumFile := filepath.Join(scratch, "go.mod"), filepath.Join(scratch, "go.sum")
	mod, err := require(filepath.Join(dir, "go.mod"), p.Version)
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("check %s: %w", folder, err)
	}
	if err := errors.Join(os.WriteFile(modFile, mod, 0o600), os.WriteFile(sumFile, foreign(sum), 0o600)); err != nil {
		return fmt.Errorf("check %s: %w", folder, err)
	}
	for _, args := range [][]string{{"mod", "tidy", "-modfile=" + modFile}, {"build", "-modfile=" + modFile, "./..."}} {
		if out, err := p.Go(ctx, dir, nil, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("check %s: go %s: %w\n%s", folder, args[0], err, out)
		}
	}
	tidyMod, err := os.ReadFile(modFile)
	if err != nil {
		return fmt.Errorf("check %s: %w", folder, err)
	}
	tidySum, err := os.ReadFile(sumFile)
	if err != nil {
		return fmt.Errorf("check %s: %w", folder, err)
	}
	tidySum = foreign(tidySum)
	if bytes.Equal(mod, tidyMod) && bytes.Equal(foreign(sum), tidySum) {
		return nil
	}
	if !fix {
		return fmt.Errorf("check %s: go.mod and go.sum: %w: go run ./tests/cmd/modules -fix\n%s%s", folder, ErrUntidy,
			different("go.mod", mod, tidyMod), different("go.sum", foreign(sum), tidySum))
	}
	return p.tidied(dir, tidyMod, tidySum)
}

// tidied writes the tidy files, in which the modules require each other in the versions that they
// require now.
func (p *Proxy) tidied(dir string, mod, sum []byte) error {
	name, sumName := filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")
	was, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("tidy %s: %w", dir, err)
	}
	before, err := modfile.Parse(name, was, nil)
	if err != nil {
		return err // it names the file
	}
	for _, r := range before.Require {
		if ours(r.Mod.Path) {
			mod = bytes.ReplaceAll(mod, []byte(r.Mod.Path+" "+p.Version), []byte(r.Mod.Path+" "+r.Mod.Version))
		}
	}
	return errors.Join(overwrite(name, mod), overwrite(sumName, sum))
}

// different returns the lines that only one of two texts has.
func different(name string, was, is []byte) string {
	var out bytes.Buffer
	for _, side := range []struct {
		mark      string
		have, not []byte
	}{{"-", was, is}, {"+", is, was}} {
		other := map[string]bool{}
		for line := range bytes.Lines(side.not) {
			other[string(line)] = true
		}
		for line := range bytes.Lines(side.have) {
			if !other[string(line)] {
				fmt.Fprintf(&out, "%s %s: %s", side.mark, name, line)
			}
		}
	}
	return out.String()
}
