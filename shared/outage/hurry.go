package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// Patience is how long somebody who watches a start waits for the first word about what does not answer.
const Patience = 2500 * time.Millisecond

// errSilent is a dependency that has not answered for Patience.
var errSilent = errors.New("no answer yet")

// Hurry reports a dependency that is silent for [Patience], unless stop is called before: however long an attempt at it goes on, the
// first word of it comes soon. silence, which may be nil, says what is known by then; nothing need be said if it gives nil. stop
// may be called again.
func (o *Outage) Hurry(ctx context.Context, silence func() error) (stop func()) {
	waiting, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if retry.Sleep(waiting, Patience) != nil {
			return
		}
		err := errSilent
		if silence != nil {
			known := silence()
			if known == nil {
				return
			}
			err = fmt.Errorf("%w: %w", errSilent, known)
		}
		o.Report(err)
	}()
	return func() {
		cancel()
		<-done
	}
}
