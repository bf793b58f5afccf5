package publish

import (
	"errors"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// unsendable is an event that can never be sent, and stops the stream. Everything before it is sent
// first. Otherwise an operator who skips the event would silently skip those changes too.
type unsendable struct {
	sequence uint64
	why      error
}

func (d *unsendable) Error() string { return d.why.Error() }
func (d *unsendable) Unwrap() error { return d.why }

// haltAt reports whether err concerns an event that can never be sent. If so, no further batch
// starts with that event or anything behind it.
func (p *Publisher) haltAt(err error) bool {
	d, ok := errors.AsType[*unsendable](err)
	if !ok {
		return false
	}
	if p.dispatcher.haltAt(d) {
		p.log.Error("an event can never be sent: everything before it is sent, and then the stream stops", telemetry.KeyError, err)
	}
	return true
}
