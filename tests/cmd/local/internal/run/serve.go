package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// Serve is `--stack-only`: it prints the settings and serves until ctx ends, as sluice-emulator does, with Azurite where
// that is asked for.
func Serve(ctx context.Context, o flags.Options, w io.Writer) error {
	s, err := Open(ctx, o)
	if errors.Is(err, mongo.ErrSnapshot) {
		return &flags.UsageError{Problems: []string{fmt.Sprintf("--mongo-snapshot: %v: remove the file to begin with nothing", err)}}
	} else if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, strings.Join(s.Settings(), "\n")) // whoever reads may have gone; the servers are wanted all the same
	return s.Run(ctx)
}
