package publish

import (
	"errors"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// doomed is an event that can never be sent, and stops the stream. What lies before it is sent first: whoever takes the checkpoint past
// the event would lose it otherwise, and nobody could tell.
type doomed struct {
	sequence uint64
	why      error
}

func (d *doomed) Error() string { return d.why.Error() }
func (d *doomed) Unwrap() error { return d.why }

// stopsBefore says whether err is of an event that can never be sent; then nothing is begun any more at that event and behind it.
func (p *Publisher) stopsBefore(err error) bool {
	d, ok := errors.AsType[*doomed](err)
	if !ok {
		return false
	}
	if p.dispatcher.stopBefore(d) {
		p.log.Error("an event can never be sent: what lies before it is sent, and then the stream stops", telemetry.KeyError, err)
	}
	return true
}
