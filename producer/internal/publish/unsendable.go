package publish

import (
	"errors"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// unsendable is an event that can never be sent, and stops the stream. What lies before it is sent first: whoever takes the checkpoint past
// the event would lose it otherwise, and nobody could tell.
type unsendable struct {
	sequence uint64
	why      error
}

func (d *unsendable) Error() string { return d.why.Error() }
func (d *unsendable) Unwrap() error { return d.why }

// haltAt says whether err is of an event that can never be sent; then nothing is begun any more at that event and behind it.
func (p *Publisher) haltAt(err error) bool {
	d, ok := errors.AsType[*unsendable](err)
	if !ok {
		return false
	}
	if p.dispatcher.haltAt(d) {
		p.log.Error("an event can never be sent: what lies before it is sent, and then the stream stops", telemetry.KeyError, err)
	}
	return true
}
