package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// Serve is `--stack-only`: it prints the settings and serves until ctx ends. With a snapshot file MongoDB begins with what
// is in it, and it is written anew at the end.
func Serve(ctx context.Context, o flags.Options, w io.Writer) error {
	s, err := Open(ctx, o)
	if err != nil {
		return err
	}
	if o.Snapshot != "" {
		if err := restore(s.Mongo, o.Snapshot); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	_, _ = fmt.Fprintln(w, strings.Join(settings(s), "\n")) // whoever reads may have gone; the servers are wanted all the same
	err = s.Run(ctx)
	if o.Snapshot != "" {
		err = errors.Join(err, save(s.Mongo, o.Snapshot))
	}
	return err
}

// settings are KEY=VALUE, as an application and the services take them.
func settings(s *stack.Stack) []string {
	env := s.Env()
	switch {
	case s.Route.Queue != "":
		env = append(env, "SERVICE_BUS_QUEUE="+s.Route.Queue)
	case s.Route.Topic != "":
		env = append(env, "SERVICE_BUS_TOPIC="+s.Route.Topic, "SERVICE_BUS_SUBSCRIPTION="+s.Route.Subscription)
	}
	return append(env, "SERVICE_BUS_ADMINISTRATION=http://"+s.Management())
}

func restore(m *mongo.Server, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the first time
	}
	if err != nil {
		return fmt.Errorf("open snapshot: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := m.Restore(f); errors.Is(err, mongo.ErrSnapshot) {
		return &flags.UsageError{Problems: []string{fmt.Sprintf("--mongo-snapshot: %s: %v: remove it to begin with nothing", path, err)}}
	} else if err != nil {
		return fmt.Errorf("restore MongoDB from %s: %w", path, err)
	}
	return nil
}

// save replaces the file only when the new one is whole.
func save(m *mongo.Server, path string) (err error) {
	f, err := os.Create(path + ".new")
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the error is reported
		}
	}()
	if err := errors.Join(m.Save(f), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write snapshot %s: %w", f.Name(), err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}
