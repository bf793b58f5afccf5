package apply

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// maxStack is how many bytes of a stack trace are kept: the panic's own frames come first, and a
// recursion without end has millions of them.
const maxStack = 8 << 10

// panicked is a panic in a projection: a permanent failure of its event, and of nothing else.
type panicked struct {
	value any
	stack string
}

// recovered returns the panic of a value that recover returned, called by the function that
// recovered it.
func recovered(value any) error {
	return panicked{value: value, stack: shorten(debug.Stack())}
}

func (p panicked) Error() string        { return fmt.Sprintf("the projection panicked: %v", p.value) }
func (p panicked) Is(target error) bool { return target == projection.ErrPermanent }

// Unwrap returns the error with which the projection panicked, if it was one.
func (p panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// Stack returns the stack trace of an error that is a panic in a projection; empty for any other.
func Stack(err error) string {
	p, _ := errors.AsType[panicked](err)
	return p.stack
}

// shorten drops the frames of the panic itself from the front of a stack trace, and limits its
// length.
func shorten(stack []byte) string {
	if _, below, found := bytes.Cut(stack, []byte("\npanic(")); found {
		if at := bytes.SplitAfterN(below, []byte("\n"), 3); len(at) == 3 {
			stack = at[2]
		}
	}
	if len(stack) <= maxStack {
		return string(stack)
	}
	stack = stack[:maxStack]
	return string(stack[:bytes.LastIndexByte(stack, '\n')+1]) + "…\n"
}
