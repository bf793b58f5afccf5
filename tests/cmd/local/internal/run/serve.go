package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-cdc/sluice/shared/terminal"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// Serve runs `--stack-only`: it prints the settings and serves until ctx ends, as sluice-emulator
// does, with Azurite where that is asked for. What it prints is for a shell, and so is the file of
// --env-file, which is there as long as the servers are.
func Serve(ctx context.Context, o flags.Options, w io.Writer) error {
	s, err := Open(ctx, o)
	if errors.Is(err, mongo.ErrSnapshot) {
		return &flags.UsageError{Problems: []string{fmt.Sprintf("--mongo-snapshot: %v: remove the file to begin with nothing", err)}}
	} else if err != nil {
		return err
	}
	var exports strings.Builder
	for _, setting := range s.Settings() {
		name, value, _ := strings.Cut(setting, "=")
		exports.WriteString("export " + name + "=" + terminal.Quote(value) + "\n")
	}
	_, _ = io.WriteString(w, exports.String()) // the reader may have gone; the servers keep running
	if o.EnvFile == "" {
		return s.Run(ctx)
	}
	if err := writeWhole(o.EnvFile, exports.String()); err != nil {
		return errors.Join(fmt.Errorf("--env-file: %w", err), s.Close())
	}
	err = s.Run(ctx)
	return errors.Join(err, os.Remove(o.EnvFile))
}

// writeWhole writes a file atomically: a reader that waits for it never finds half of it.
func writeWhole(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
