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
)

// Build builds the two services into dir and returns the paths of the programs.
func Build(ctx context.Context, dir string) (producer, projector string, err error) {
	producer, projector = filepath.Join(dir, "producer"), filepath.Join(dir, "projector")
	if err := BuildProgram(ctx, "producer/cmd/producer", producer); err != nil {
		return "", "", err
	}
	return producer, projector, BuildProgram(ctx, "projector/cmd/projector", projector)
}

// BuildProgram builds the program in a folder of the checkout.
func BuildProgram(ctx context.Context, folder, program string) error {
	root, err := Checkout()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(root, filepath.FromSlash(folder))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// Checkout returns the root of the source tree: above the working directory, or above the source of
// this program.
func Checkout() (string, error) {
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
