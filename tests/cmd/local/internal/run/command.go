package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// command runs a command of the projector, with the settings of the projectors, and returns what it
// printed.
func (r *runner) command(ctx context.Context, words ...string) (string, error) {
	if len(r.projectors) == 0 {
		return "", errors.New("the services do not run yet")
	}
	return run(ctx, "projector", r.projectors[0],
		[]string{"SOURCE_DATABASE=" + r.places.source, "SOURCE_COLLECTION=" + r.places.collection, "BLOB_CONTAINER=" + r.places.container}, words...)
}

// change runs a command that changes the read model. The run does not stand still meanwhile.
func (r *runner) change(ctx context.Context, words ...string) (string, error) {
	r.changing.Add(1)
	defer r.changing.Add(-1)
	defer func() { r.moved.Store(time.Now().UnixNano()) }()
	return r.command(ctx, words...)
}

// run runs a command of a service, with the settings of its place and others, and returns what it
// printed.
func run(ctx context.Context, service string, slot *child.Slot, others []string, words ...string) (string, error) {
	code, text, err := child.Command(ctx, append(slices.Clone(slot.Env), others...), slot.Program, words...)
	switch {
	case err != nil:
		return "", err
	case ctx.Err() != nil:
		return "", ctx.Err()
	case code != 0:
		return "", errors.New(service + " " + strings.Join(words[:min(2, len(words))], " ") + ": " + strings.TrimSpace(text))
	}
	return text, nil
}

// ask decodes what a command of the projector prints as JSON.
func (r *runner) ask(ctx context.Context, answer any, words ...string) error {
	text, err := r.command(ctx, words...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		return fmt.Errorf("read what projector %s prints: %w", words[0], err)
	}
	return nil
}
