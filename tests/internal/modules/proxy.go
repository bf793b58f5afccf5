package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Proxy is a folder that serves the released modules of this repository in one version.
type Proxy struct {
	Dir     string
	Version string

	sums map[string][2]string // by the module's path: of the module, and of its go.mod
}

// sum returns the lines of a go.sum for a module of the proxy.
func (p *Proxy) sum(path string) []string {
	s := p.sums[path]
	return []string{
		fmt.Sprintf("%s %s %s\n", path, p.Version, s[0]),
		fmt.Sprintf("%s %s/go.mod %s\n", path, p.Version, s[1]),
	}
}

// Go returns a go command outside the workspace that finds this repository's modules in the proxy,
// and all others in the usual place. dir is the working directory; env is added to the environment.
func (p *Proxy) Go(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	others := os.Getenv("GOPROXY")
	if out, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output(); err == nil {
		others = strings.TrimSpace(string(out))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GOWORK=off",
		"GOPROXY=file://"+filepath.ToSlash(p.Dir)+","+others,
		"GONOSUMDB="+Base+"/*",
		"GOFLAGS=-mod=mod -modcacherw -trimpath -tags=grpcnotrace", "CGO_ENABLED=0", // as in the Makefile: nothing is compiled twice
	)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// Forget removes the proxy's modules from the go command's cache, which would keep them for ever.
func (p *Proxy) Forget(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("find the module cache: %w", err)
	}
	var errs []error
	for _, folder := range Released() {
		path := filepath.FromSlash(Path(folder))
		cache := strings.TrimSpace(string(out))
		kept, err := filepath.Glob(filepath.Join(cache, "cache", "download", path, "@v", p.Version+".*"))
		errs = append(errs, err)
		for _, name := range append(kept, filepath.Join(cache, path+"@"+p.Version)) {
			errs = append(errs, os.RemoveAll(name))
		}
	}
	return errors.Join(errs...)
}
