// Package child builds the services, runs them as processes of their own, and replaces a process
// that ended with a new one, as a platform would.
//
// Guaranteed: when [Slot.Run] returns, its process has ended. A process also ends when this one is
// killed (on Linux, by its parent-death signal). Not guaranteed: that the process finished its
// work; that is what a run checks.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

// Build builds the two services into dir and returns the paths of the programs.
func Build(ctx context.Context, dir string) (producer, projector string, err error) {
	producer, projector = filepath.Join(dir, "producer"), filepath.Join(dir, "projector")
	if err := BuildProgram(ctx, "producer/cmd/producer", producer); err != nil {
		return "", "", err
	}
	return producer, projector, BuildProgram(ctx, "projector/cmd/projector", projector)
}

// EnvPrograms names the folder in which scripts/test.sh has built the programs, each under the path
// of its source.
const EnvPrograms = "SLUICE_PROGRAMS"

// BuildProgram builds the program whose source is in a folder of the checkout, or takes the one
// that was built for all tests.
func BuildProgram(ctx context.Context, folder, program string) error {
	if dir := os.Getenv(EnvPrograms); dir != "" {
		return take(filepath.Join(dir, filepath.FromSlash(folder)), program)
	}
	root, err := Checkout()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(root, filepath.FromSlash(folder))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything that is not for the race detector
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// take gives a program a second name, or copies it if that is on another file system.
func take(built, program string) error {
	if os.Link(built, program) == nil {
		return nil
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return fmt.Errorf("take the program that was built for all tests: %w", err)
	}
	return os.WriteFile(program, content, 0o755)
}

// Checkout returns the root of the source tree: above the working directory, or above the source of
// this program.
func Checkout() (string, error) {
	tree.Depend()
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			_, err := os.Stat(filepath.Join(dir, "producer", "cmd", "producer"))
			if err == nil {
				return dir, nil
			}
		}
	}
	return "", errors.New("find the services' source: run this command inside the checkout")
}
