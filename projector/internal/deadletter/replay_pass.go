package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// pass replays the dead letters of an aggregate whose sessions are held. The error is
// [apply.ErrMoved] if events were set aside meanwhile.
func (p *Replayer) pass(ctx context.Context, letters Peeker, held *held, t *task) (err error) {
	aggregate, a, waiting, skip, o := t.a.Name, t.a, t.letters, t.drop != nil, &t.o
	o.Stuck = nil
	if a.Reason == apply.ReasonBuild {
		return fmt.Errorf("%w: %s. Correct the projection, then: %s", ErrNotBuilt, a.Description, terminal.Paste(aggregate, p.Program, "repair"))
	}
	if now := InTheWay(a, waiting); skip && t.drop.MessageID != "" && t.drop.MessageID != now {
		return fmt.Errorf("%w: message %s, so nothing was dropped; check again: %s", ErrAnother, cmp.Or(now, "unknown"),
			terminal.Paste(aggregate, p.Program, "parked show"))
	}
	if waiting, err = p.stuckOnOvertaken(ctx, a, waiting, skip, o); err != nil || o.Stuck != nil {
		return err
	}
	if a.Reason == apply.ReasonOvertaken { // the event that parked it is already dealt with
		skip = false
	}
	if a.Reason == apply.ReasonOperator && skip { // see InTheWay
		if len(waiting) == 0 {
			return fmt.Errorf("%w: to end its parking: %s", ErrNothingWaits, terminal.Paste(aggregate, p.Program, "parked replay"))
		}
		a.MessageID, a.Stream, a.Record.Position = waiting[0].MessageID, waiting[0].change.Stream, waiting[0].Position
	}
	replay := apply.Replay{Aggregate: aggregate, ID: a.ID}
	gone, err := p.missing(ctx, a, waiting, held)
	switch {
	case err != nil:
		return err
	case gone && !skip:
		return fmt.Errorf("%w (message %s): it was removed. To continue without it: %s",
			ErrMissing, a.MessageID, p.DropCommand(aggregate, a.MessageID))
	case skip && gone: // what follows it may lack the one version that it had
		replay.Past, o.Skipped = apply.Past{Before: versionedBehind(a, waiting), Most: 1}, true
	case skip:
		o.Skipped = true
		messageID := a.MessageID
		if at := slices.IndexFunc(waiting, func(l Letter) bool { return a.Of(&l.change) }); at >= 0 {
			messageID = waiting[at].MessageID // published again, it has another one
		}
		if a.Reason == apply.ReasonVersionGap {
			replay.Past, o.MissingVersions = apply.Past{Before: messageID}, a.Description
		} else {
			replay.Skip = messageID
		}
	}
	if err := p.apply(ctx, letters, replay, waiting, o); err != nil {
		return err
	}
	if o.Stuck != nil {
		return nil
	}
	return p.Applier.Unpark(ctx, aggregate, a.Fence())
}

// InTheWay returns the message id of the event that a drop gives up: of the one that parked the
// aggregate, or, if a person parked it because of no event, of the first one that waits.
func InTheWay(a apply.Aggregate, waiting []Letter) string {
	if a.Reason == apply.ReasonOperator && len(waiting) > 0 {
		return waiting[0].MessageID
	}
	return a.MessageID
}

// DropCommand returns the command that gives up an event, for an operator to paste.
func (p *Replayer) DropCommand(aggregate, messageID string) string {
	words := []string{p.Program, "parked drop", "--yes"}
	if messageID != "" {
		words = append(words, "--message", terminal.Quote(messageID))
	}
	return terminal.Paste(aggregate, words...)
}

// versionedBehind returns the message id of the first letter with a version behind the event that
// parked the aggregate; empty without one.
func versionedBehind(a apply.Aggregate, waiting []Letter) string {
	for _, l := range waiting {
		if l.Version > 0 && l.change.Operation == envelope.Insert &&
			(a.Stream == "" || l.change.Stream == a.Stream) && l.Position > a.Record.Position {
			return l.MessageID
		}
	}
	return ""
}

// missing reports whether the event that parked the aggregate is gone: it has not been applied
// meanwhile, and is neither in the dead-letter queue nor in a session of the aggregate, where the
// projector that parked it may have left it.
func (p *Replayer) missing(ctx context.Context, a apply.Aggregate, waiting []Letter, held *held) (bool, error) {
	if a.MessageID == "" || (a.Record.Position != "" && a.Record.Position <= a.Position) {
		return false, nil
	}
	if slices.ContainsFunc(waiting, func(l Letter) bool { return a.Of(&l.change) }) {
		return false, nil
	}
	missing := true
	for _, name := range sessionsOf(a) {
		err := p.scan(ctx, held.sessions[name], func(m *azservicebus.ReceivedMessage) bool {
			events, isPack := envelope.Unpack(m)
			if !isPack {
				events = append(events, m)
			}
			for _, e := range events {
				c := envelope.Partial(e)
				missing = missing && (!a.Of(&c) || m.SessionID == nil || *m.SessionID != name)
			}
			return missing
		})
		if err != nil || !missing {
			return missing, err
		}
	}
	return true, nil
}
