// Package child builds the services, runs them as processes of their own, and puts a new one in the place of one that
// ended, as a platform would.
//
// Guaranteed: when [Slot.Run] returns its process has ended. A process also ends when this one is killed (Linux:
// by its parent-death signal). Not guaranteed: that what it was doing was finished; that is what the run checks.
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

// BuildProgram builds the program whose source is in a folder of the checkout.
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

// Checkout finds the root of the source: above the working directory, or where this program's own source is.
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
