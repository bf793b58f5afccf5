// Package outage says that something fails, now and then that it still does and why, and once that it works again, however
// many workers notice.
package outage

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Outage follows one dependency. It is safe for concurrent use.
type Outage struct {
	log  *slog.Logger
	what string

	mu    sync.Mutex
	err   error     // the failure it is in, nil when it works; guarded by mu
	began time.Time // of the failure; guarded by mu
	told  time.Time // when it was last logged; guarded by mu
}

// remind is how often a failure that goes on is logged: what it is now may be another one than at first.
const remind = 5 * time.Minute

// New makes a follower; what names the dependency in the log.
func New(log *slog.Logger, what string) *Outage { return &Outage{log: log, what: what} }

const (
	keyDependency = "dependency"
	keyFor        = "for"
)

// Report takes the outcome of one attempt.
func (o *Outage) Report(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, now := o.err, time.Now()
	o.err = err
	switch {
	case err != nil && before == nil:
		o.began, o.told = now, now
		o.log.Warn("dependency fails; trying again", keyDependency, o.what, telemetry.KeyError, err)
	case err != nil && now.Sub(o.told) >= remind:
		o.told = now
		o.log.Warn("dependency still fails; trying again", keyDependency, o.what, keyFor, lasting(now.Sub(o.began)), telemetry.KeyError, err)
	case err == nil && before != nil:
		o.log.Info("dependency works again", keyDependency, o.what, keyFor, lasting(now.Sub(o.began)))
	}
}

func lasting(d time.Duration) string { return d.Round(time.Millisecond).String() }

// Err is the failure it is in, or nil.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
