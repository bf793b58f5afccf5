package emulator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// restore loads a snapshot file into MongoDB; the first time the file does not exist.
func restore(m *mongo.Server, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open snapshot: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := m.Restore(f); err != nil {
		return fmt.Errorf("restore MongoDB from %s: %w", path, err)
	}
	return nil
}

// save replaces the file only when the new one is complete.
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
