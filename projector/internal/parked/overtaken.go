package parked

import (
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// parkStray parks an aggregate that is not parked because of the first of its dead letters that the broker put there by itself and that
// is not known to have been applied. It answers false where there is none.
func (p *Replayer) parkStray(ctx context.Context, a apply.Aggregate, letters []Letter) (bool, error) {
	for _, l := range letters {
		standing := p.Applier.Standing(a.Guard, &l.change, l.Reason)
		if apply.ByProjector(l.Reason) || standing == apply.Done || l.session == "" {
			continue
		}
		why := apply.Result{Kind: apply.Poison, Reason: apply.ReasonDeliveries, Description: fmt.Sprintf(
			"the broker dead-lettered the event by itself (%s)", l.Reason)}
		if standing == apply.Overtaken {
			why = overtaken(l)
		}
		return true, p.Applier.Park(ctx, l.session, &l.change, why)
	}
	return false, nil
}

// overtaken is the reason of an aggregate that is parked because one of its events was overtaken.
func overtaken(l Letter) apply.Result {
	return apply.Result{Kind: apply.Poison, Reason: apply.ReasonOvertaken, Description: fmt.Sprintf(
		"the broker dead-lettered the event by itself (%s), and later events of the aggregate were applied; nothing says whether it was applied "+
			"before them. Compare the read model with the source: where its effect is there, or not missed, drop it", l.Reason)}
}

// stuckOnOvertaken holds a replay up at the first letter that was overtaken. The one that a person gives up is removed from the queue
// before anything else: its position is behind the guard's, which can say nothing of it. left are the letters without it.
func (p *Replayer) stuckOnOvertaken(ctx context.Context, a apply.Aggregate, letters []Letter, skip bool, o *Outcome) (left []Letter, err error) {
	at := slices.IndexFunc(letters, func(l Letter) bool { return p.Applier.Standing(a.Guard, &l.change, l.Reason) == apply.Overtaken })
	if at >= 0 && skip && a.Reason == apply.ReasonOvertaken && letters[at].MessageID == a.MessageID {
		removed, err := p.remove(ctx, map[int64]bool{letters[at].sequence: true})
		switch {
		case err != nil:
			return nil, err
		case removed == 0:
			return nil, locked(letters[at])
		}
		o.Skipped = true
		return p.stuckOnOvertaken(ctx, a, slices.Delete(slices.Clone(letters), at, at+1), false, o)
	}
	if at < 0 {
		return letters, nil
	}
	l, why := letters[at], overtaken(letters[at])
	o.Stuck = &Stuck{l.MessageID, l.Position, why.Reason, why.Description}
	return letters, p.Applier.Amend(ctx, a.Name, a.ID, l.change, why)
}

// Strays are the aggregates that dead letters name which the broker put there by itself, in order of their first.
func (p *Replayer) Strays(ctx context.Context) (aggregates []string, err error) {
	receiver, err := p.deadLetters()
	if err != nil {
		return nil, err
	}
	defer p.closeDeadLetters(ctx, receiver)
	seen := make(map[string]bool)
	err = p.scan(ctx, receiver, func(m *azservicebus.ReceivedMessage) bool {
		c := envelope.Partial(m)
		if c.Aggregate != "" && !seen[c.Aggregate] && !apply.ByProjector(letterOf(m, c).Reason) {
			seen[c.Aggregate] = true
			aggregates = append(aggregates, c.Aggregate)
		}
		return true
	})
	return aggregates, err
}
