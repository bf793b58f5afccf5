package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// Patience is how soon after the start an unresponsive dependency is logged.
const Patience = 2500 * time.Millisecond

// errSilent is reported for a dependency that has not answered for Patience.
var errSilent = errors.New("no answer yet")

// Hurry reports a dependency that has not answered for [Patience], unless stop is called before
// that. So the first log record comes soon, however long an attempt takes. silence returns the
// reason that is known by then; if it returns nil, nothing is logged. silence may be nil. stop may
// be called again.
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
