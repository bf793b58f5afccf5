package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

// markAccepted records that other settings hold behind the position of a record.
func markAccepted(r *checkpoint.Record) {
	if !changes.Counted(r.Progress.Position) { // nothing is published again where positions are counted
		r.AcceptedAt = max(r.AcceptedAt, r.Progress.Position)
	}
}

// AcceptFingerprint tells the checkpoint that from now on the stream is published by the present settings, which find aggregates or
// versions elsewhere than those before. drained is the operator's word that no message of the old ones is left anywhere. Errors:
// [ErrRefused], or the services'.
func (s *Stream) AcceptFingerprint(ctx context.Context, drained bool) error {
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	to := s.Fingerprint
	if s.Cluster != nil {
		to.Cluster = s.Cluster(ctx)
	}
	numbers := to.Numbers
	to = to.Inherit(present.Record.Fingerprint)
	if drained {
		to.Numbers = numbers // a new text of numbers needs --drained, and the other settings may not
	}
	changed, drain := present.Record.Fingerprint.Diff(to)
	switch {
	case len(changed) == 0:
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: these settings put every change of stream %q where those before put it", s.Name)
	case drain && !drained:
		return fmt.Errorf("%w: %s. As long as messages published by the former settings wait, events of one aggregate would be in two "+
			"sessions, be applied out of order, and the late ones be taken for duplicates and lost. Stop every producer, let the projectors "+
			"empty every subscription, replay or drop what is parked, and then give --drained", ErrRefused, strings.Join(changed, "; "))
	}
	// Never by force: whoever leads would go on publishing by the old settings until it notices.
	t, kept, err := s.rewrite(ctx, false, func(r *checkpoint.Record) {
		r.Fingerprint = to
		markAccepted(r)
	})
	if err != nil {
		return err
	}
	return s.print(t.done(kept), "stream %q: accepted: %s; epoch %d; the old record is kept as blob %s\n"+
		"Read models keep what they have: where aggregates have other ids now, or versions begin anew, build new ones.\n"+
		"What lies before the checkpoint was published by the former settings: a rewind behind it needs --reapply.",
		s.Name, strings.Join(changed, "; "), t.from.Record.Epoch+1, kept)
}
