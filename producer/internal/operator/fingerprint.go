package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// AcceptFingerprint records in the checkpoint that from now on the stream is published with the
// present settings, which assign other aggregates or versions than before. drained is the
// operator's confirmation that no message of the old settings is left anywhere. Errors:
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
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: these settings assign the same aggregate and version to every change of stream %q", s.Name)
	case drain && !drained:
		return fmt.Errorf("%w: %s. As long as messages published by the former settings wait, events of one aggregate would be in two "+
			"sessions, be applied out of order, and the late ones be taken for duplicates and lost. Stop every producer, let the projectors "+
			"empty every subscription, replay or drop what is parked, and then give --drained", ErrRefused, strings.Join(changed, "; "))
	}
	// Never by force: an overruled leader would keep publishing with the old settings until it
	// notices.
	t, err := s.rewrite(ctx, false, func(r *checkpoint.Record) error {
		r.Fingerprint = to
		if !changes.Counted(r.Progress.Position) { // nothing is published again if positions are counted
			r.AcceptedAt = max(r.AcceptedAt, r.Progress.Position)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.print(t.done(), "stream %q: accepted: %s; epoch %d; the old record is kept as blob %s\n"+
		"Read models keep their data: if aggregates have other ids now, or versions start over, build new ones.\n"+
		"Everything before the checkpoint was published with the former settings: a rewind to an earlier time needs --reapply.",
		s.Name, strings.Join(changed, "; "), t.epoch, t.kept)
}

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
	t, err := s.rewrite(ctx, false, func(r *checkpoint.Record) error {
		r.SessionKey = key
		return nil
	})
	if err != nil {
		return err
	}
	return s.print(t.done(), "stream %q: session key %s → %s, epoch %d; the old record is kept as blob %s\n"+
		"Start the producers with SESSION_KEY=%s: any other is refused.",
		s.Name, t.from.Record.SessionKey, key, t.epoch, t.kept, key)
}
