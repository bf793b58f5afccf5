// Package outage logs that a dependency of a service fails: at the first failure, every five
// minutes while the outage lasts, and once when it ends, however many workers notice it.
//
// Except for [Outage.Until], this package only logs: the services retry. Metrics count how often
// something failed.
package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Outage follows one dependency. It is safe for concurrent use.
type Outage struct {
	log  *slog.Logger
	what string

	mu       sync.Mutex
	err      error     // the current failure, nil without one; guarded by mu
	began    time.Time // of the failure; guarded by mu
	logged   time.Time // when it was last logged; guarded by mu
	failures int       // since it began; guarded by mu
}

// remindEvery is how often an outage that lasts is logged again: its reason may have changed.
const remindEvery = 5 * time.Minute

// advice is for the operator who reads the log: transient failures are retried, and the doctor
// explains the others.
const advice = "nothing, if it recovers; if it lasts, run the command doctor, which shows the problem and how to fix it"

// New returns the Outage of a dependency; what is its name in the log.
func New(log *slog.Logger, what string) *Outage { return &Outage{log: log, what: what} }

// Report records the result of one attempt. The attributes are added to the log record, if there is
// one.
func (o *Outage) Report(err error, attributes ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, now := o.err, time.Now()
	o.err = err
	if err != nil {
		o.failures++
	}
	about := func(more ...any) []any {
		return append(append([]any{telemetry.KeyDependency, o.what}, more...), attributes...)
	}
	lasted := now.Sub(o.began).Round(time.Millisecond).String()
	switch {
	case err != nil && before == nil:
		o.began, o.logged = now, now
		o.log.Warn("dependency fails; retrying", about(telemetry.KeyError, err, telemetry.KeyToDo, advice)...)
	case err != nil && now.Sub(o.logged) >= remindEvery:
		o.logged = now
		o.log.Warn("dependency still fails; retrying",
			about(telemetry.KeyFor, lasted, telemetry.KeyFailures, o.failures, telemetry.KeyError, err, telemetry.KeyToDo, advice)...)
	case err == nil && before != nil:
		o.log.Info("dependency works again", about(telemetry.KeyFor, lasted, telemetry.KeyFailures, o.failures)...)
		o.failures = 0
	}
}

// Until retries check until it succeeds, and reports every attempt, with the attributes. attempt
// bounds one attempt. Until returns false if ctx ends first.
func (o *Outage) Until(ctx context.Context, attempt time.Duration, check func(context.Context) error, attributes ...any) bool {
	var backoff retry.Backoff
	for {
		trying, cancel := context.WithTimeout(ctx, attempt)
		err := check(trying)
		cancel()
		if ctx.Err() != nil {
			return false
		}
		o.Report(err, attributes...)
		if err == nil {
			return true
		}
		if backoff.Wait(ctx) != nil {
			return false
		}
	}
}

// Err returns the current failure, or nil.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

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
	var over sync.WaitGroup
	over.Go(func() {
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
	})
	return func() {
		cancel()
		over.Wait()
	}
}
