// Package outage says once that something fails and once that it works again, however many workers notice.
package outage

import (
	"log/slog"
	"sync"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Outage follows one dependency. It is safe for concurrent use.
type Outage struct {
	log                *slog.Logger
	failing, recovered string

	mu  sync.Mutex
	err error // the failure it is in, nil when it works; guarded by mu
}

// New makes a follower that logs the given constant messages.
func New(log *slog.Logger, failing, recovered string) *Outage {
	return &Outage{log: log, failing: failing, recovered: recovered}
}

// Report takes the outcome of one attempt.
func (o *Outage) Report(err error) {
	o.mu.Lock()
	before := o.err
	o.err = err
	o.mu.Unlock()
	switch {
	case err != nil && before == nil:
		o.log.Warn(o.failing, telemetry.KeyError, err)
	case err == nil && before != nil:
		o.log.Info(o.recovered)
	}
}

// Err is the failure it is in, or nil.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
