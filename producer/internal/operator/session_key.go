package operator

import (
	"context"
	"fmt"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// SetSessionKey records in the checkpoint that from now on the stream is published with another
// session key. drained is the operator's confirmation that no message of the old key is left
// anywhere, which cannot be checked here. Errors: [ErrRefused], or the services'.
func (s *Stream) SetSessionKey(ctx context.Context, key envelope.SessionKey, drained bool) error {
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	was := present.Record.SessionKey
	if was == key {
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: stream %q is published with %s", s.Name, key)
	}
	if !drained {
		return fmt.Errorf("%w: as long as messages published with %s wait, events of one aggregate would be in two sessions, be "+
			"applied out of order, and the late ones be taken for duplicates and lost. Stop every producer, let the projectors "+
			"empty every subscription, replay or drop what is parked, and then give --drained", ErrRefused, was)
	}
	// Never by force: an overruled leader would keep sending with the old key until it notices.
	t, kept, err := s.rewrite(ctx, false, func(r *checkpoint.Record) error {
		r.SessionKey = key
		return nil
	})
	if err != nil {
		return err
	}
	return s.print(t.done(kept), "stream %q: session key %s → %s, epoch %d; the old record is kept as blob %s\n"+
		"Start the producers with SESSION_KEY=%s: any other is refused.",
		s.Name, t.from.Record.SessionKey, key, t.epoch, kept, key)
}
