package apply

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// panicking panics in a function of its own.
type panicking struct{ with func() }

func (panicking) Name() string                                           { return "panicking" }
func (p panicking) Project(projection.Event) ([]projection.Write, error) { p.with(); return nil, nil }

func dereference() {
	var e *projection.Event
	_ = e.Type
}

func TestAPanicKeepsItsStack(t *testing.T) {
	_, _, err := project(panicking{dereference}, envelope.Change{})
	require.ErrorIs(t, err, projection.ErrPermanent)
	require.EqualError(t, err, "the projection panicked: runtime error: invalid memory address or nil pointer dereference")
	stack := Stack(err)
	first, _, _ := strings.Cut(stack, "\n")
	require.Contains(t, first, "apply.dereference", "where it happened comes first:\n%s", stack)
	require.Contains(t, stack, "panic_test.go")

	_, _, err = project(panicking{func() { panic(io.EOF) }}, envelope.Change{})
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, Permanent, Classify(err))
	require.Equal(t, "the projection panicked: EOF", poison(ReasonProjection, err).Description)
	require.NotEmpty(t, poison(ReasonProjection, err).Stack)

	require.Empty(t, Stack(projection.Permanent(errors.New("no amount"))))
}

func TestAStackIsBounded(t *testing.T) {
	var descend func(int)
	descend = func(depth int) {
		if depth == 0 {
			panic(strings.Repeat("x", 10))
		}
		descend(depth - 1)
	}
	_, _, err := project(panicking{func() { descend(5000) }}, envelope.Change{})
	stack := Stack(err)
	require.LessOrEqual(t, len(stack), maxStack+len("…\n"))
	require.Greater(t, len(stack), 1000)
	require.True(t, strings.HasSuffix(stack, "\n…\n"))
	require.Contains(t, stack, "TestAStackIsBounded")
}
