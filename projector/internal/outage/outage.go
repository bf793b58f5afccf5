// Package outage says once that something fails and once that it works again, however many workers notice.
package outage

import (
	"log/slog"
	"sync"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Outage follows one dependency. It is safe for concurrent use.
type Outage struct {
	log  *slog.Logger
	what string

	mu  sync.Mutex
	err error // the failure it is in, nil when it works; guarded by mu
}

// New makes a follower; what names the dependency in the log.
func New(log *slog.Logger, what string) *Outage { return &Outage{log: log, what: what} }

const keyDependency = "dependency"

// Report takes the outcome of one attempt.
func (o *Outage) Report(err error) {
	o.mu.Lock()
	before := o.err
	o.err = err
	o.mu.Unlock()
	switch {
	case err != nil && before == nil:
		o.log.Warn("dependency fails; trying again", keyDependency, o.what, telemetry.KeyError, err)
	case err == nil && before != nil:
		o.log.Info("dependency works again", keyDependency, o.what)
	}
}

// Err is the failure it is in, or nil.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
