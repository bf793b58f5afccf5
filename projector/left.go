package projector

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// left are the aggregates of a session that fail by themselves, and are not tried any more before it is accepted again. Their messages
// stay in hand meanwhile, neither applied nor settled, so that those of other aggregates behind them can be received: else as many of them
// as are received at once would hold up everybody who shares the session.
type left struct {
	s          *service
	aggregates map[string]bool
	messages   int // of them that are in hand
}

// maxLeft bounds the messages that are kept in hand; the room of a worker bounds them as well.
const maxLeft = 1000

func (s *service) newLeft() *left { return &left{s: s, aggregates: make(map[string]bool)} }

// next returns the session's next messages. Once some are left, it is what lies behind them; when there is nothing, or an aggregate is
// due again, or too much is in hand, the session is released.
func (l *left) next(ctx context.Context, session *sessions.Session, completing *settlement) ([]*azservicebus.ReceivedMessage, error) {
	if l.messages == 0 {
		return session.Receive(ctx)
	}
	if err := completing.wait(); err != nil { // what is completed needs the room
		return nil, err
	}
	if l.due() > 0 && l.messages < session.Room(maxLeft) {
		if messages := session.Behind(ctx); len(messages) > 0 {
			return messages, nil
		}
	}
	return nil, l.giveBack(ctx)
}

// keep keeps in hand what cannot be tried any more of a batch. It answers false where that is not all that is left of the batch: what
// might be tried must not be overtaken.
func (l *left) keep(rest *batch) bool {
	for i, r := range rest.results {
		if !l.aggregates[rest.changes[i].Aggregate] || r.Kind != apply.Pending && r.Kind != apply.Poison {
			return false
		}
	}
	l.messages += rest.len()
	return true
}

// due is how long it is until one of the aggregates should be tried again, at most maxIdleHold.
func (l *left) due() time.Duration {
	first := maxIdleHold
	for name := range l.aggregates {
		first = min(first, l.s.failing.Due(name))
	}
	return first
}

// giveBack releases the session after a pause: nothing in it can be tried now. It comes again, and no delivery count rises.
func (l *left) giveBack(ctx context.Context) error {
	_ = retry.Sleep(ctx, max(l.due(), 100*time.Millisecond)) // the session is released in any case
	return sessions.ErrRelease
}
