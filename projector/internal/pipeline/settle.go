package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// A message is completed only if a result reports that its effect is committed ([apply.Applied],
// [apply.Duplicate]). A message whose change is undecided is not settled, so that no delivery count
// rises. A settlement that fails leaves the message to be delivered again; the guard of the read
// model then recognises it.

// settleAction is how a message is settled.
type settleAction uint8

const (
	leave      settleAction = iota // not at all: the message stays locked
	complete                       // removes the message
	deadLetter                     // moves it to the dead-letter queue, with a reason and a description
)

// settlement is how one message is settled.
type settlement struct {
	message             *azservicebus.ReceivedMessage
	action              settleAction
	reason, description string
}

// maxDescription keeps a description well below the broker's limit of 4096 characters.
const maxDescription = 1024

// settlementOf returns how a message is settled whose change has this result. It is pure.
func settlementOf(result apply.Result) settlement {
	switch result.Kind {
	case apply.Applied, apply.Duplicate:
		return settlement{action: complete}
	case apply.Poison, apply.Parked:
		if result.Kind == apply.Poison && !result.Recorded {
			break // later events would overtake it
		}
		return settlement{action: deadLetter, reason: result.Reason, description: amqpText(result.Description)}
	case apply.Pending, apply.Gap:
	}
	return settlement{action: leave}
}

// amqpText returns text as an AMQP string: valid UTF-8, because anything else ends the connection
// of all sessions, and cut to maxDescription, between two characters.
func amqpText(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= maxDescription {
		return text
	}
	cut := 0
	for i := range text {
		if i > maxDescription-len("…") {
			break
		}
		cut = i
	}
	return text[:cut] + "…"
}

// settle settles the messages of a batch by their results. The effects are committed: only now may
// a message be completed. It waits for the broker's answers, unless all messages are completed:
// then the settlement continues while the next batch is received and applied. That does not affect
// order: a message that is completed late, or not at all, is at worst delivered again and
// recognised as a duplicate. Dead letters that remain when receiving ends are
// dead-lettered after their next delivery.
//
// Messages that were delivered often wait before, while the session is kept without a worker and
// its lock is renewed. Their aggregates are parked by then if this is their last delivery.
func (h *handler) settle(receiving, applying context.Context, b *batch) error {
	settlements := make([]settlement, b.len())
	for i, r := range b.results {
		settlements[i] = settlementOf(r)
		settlements[i].message = b.events[i].message
		h.logDecision(h.session.ID(), &b.changes[i], r)
	}
	if !slices.ContainsFunc(settlements, func(s settlement) bool { return s.action != leave }) {
		return nil
	}
	if longest := b.pause; longest > 0 {
		b.pause = 0
		wait := longest/2 + rand.N(longest/2)
		h.opts.Logger.Warn("messages are delivered again and again, because their session's lock was lost each time: waiting before they are settled",
			telemetry.KeySession, h.session.ID(), telemetry.KeyDelivery, b.deliveries, telemetry.KeyWait, wait.Milliseconds())
		if err := h.session.Yield(receiving, b.bytes(), func(bool) { _ = retry.Sleep(receiving, wait) }); err != nil {
			return fmt.Errorf("stop with messages in hand: %w", err)
		}
	}
	sent, err := h.repack(applying, b, settlements)
	if err != nil {
		return err
	}
	start, span := time.Now(), b.spans.settling(applying)
	h.session.Settle(func() error {
		err := sendSettlements(receiving, h.session.Settler(), h.opts.SettleTimeout, sent)
		h.observeSettled(settlements, span, time.Since(start), err)
		return err
	})
	if !slices.ContainsFunc(sent, func(s settlement) bool { return s.action != complete }) {
		return nil
	}
	return h.session.Settled()
}

// inFlight bounds the concurrent settlements of one session: each costs a round trip, and the
// protocol has no batch form.
const inFlight = 128

// sendSettlements sends the settlements and waits for the broker's answers: completions
// concurrently, dead letters one after the other, so that they arrive in the dead-letter queue in
// order. Each settlement gets timeout: the SDK would otherwise retry for 40 seconds. The error
// joins one failure of each kind, after all have ended.
//
// Completions finish even if ctx ends meanwhile, so that applied messages are not delivered again.
// No dead letter is sent after ctx has ended: its aggregate is parked, so it is dead-lettered after
// its next delivery.
func sendSettlements(ctx context.Context, to sessions.Settler, timeout time.Duration, settlements []settlement) error {
	stopping := ctx
	ctx = context.WithoutCancel(ctx)
	var group errgroup.Group
	group.SetLimit(inFlight)
	var dead []settlement
	for _, s := range settlements {
		switch s.action {
		case complete:
			group.Go(func() error { return sendSettlement(ctx, to, timeout, s) })
		case deadLetter:
			dead = append(dead, s)
		case leave:
		}
	}
	var first error
	for _, s := range dead {
		if stopping.Err() != nil {
			first = fmt.Errorf("dead-letter message: %w", context.Cause(stopping))
			break
		}
		if first = sendSettlement(ctx, to, timeout, s); first != nil {
			break // what follows would come out of order
		}
	}
	return errors.Join(first, group.Wait())
}

func sendSettlement(ctx context.Context, to sessions.Settler, timeout time.Duration, s settlement) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch s.action {
	case complete:
		if err := to.CompleteMessage(ctx, s.message, nil); err != nil {
			return fmt.Errorf("complete message: %w", err)
		}
	case deadLetter:
		options := &azservicebus.DeadLetterOptions{Reason: &s.reason, ErrorDescription: &s.description}
		if err := to.DeadLetterMessage(ctx, s.message, options); err != nil {
			return fmt.Errorf("dead-letter message: %w", err)
		}
	case leave:
	}
	return nil
}

// logDecision logs what an operator should know of one change. The record of a parking is committed
// by then.
func (p *Pipeline) logDecision(session string, c *envelope.Change, r apply.Result) {
	attributes := []any{
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeySession, session, telemetry.KeyMessageID, c.MessageID,
		telemetry.KeyPosition, c.Position, telemetry.KeyReason, r.Reason,
	}
	switch r.Kind {
	case apply.Poison:
		if !r.Recorded {
			return
		}
		if c.Aggregate == "" {
			p.opts.Logger.Warn("event dead-lettered; its message names no aggregate, so none is parked", append(attributes, telemetry.KeyDescription, r.Description)...)
			return
		}
		p.opts.Logger.Warn("aggregate parked: an event could not be applied; its events wait in the dead-letter queue until it is replayed",
			append(attributes, telemetry.KeyDescription, r.Description, telemetry.KeyToDo, terminal.Paste(c.Aggregate, p.opts.Program, "parked show"))...)
		if r.Stack != "" {
			p.opts.Logger.Error("the projection panicked", telemetry.KeyAggregate, c.Aggregate, telemetry.KeyMessageID, c.MessageID,
				telemetry.KeyDescription, r.Description, telemetry.KeyStack, r.Stack)
		}
	case apply.Parked:
		p.opts.Logger.Debug("event dead-lettered behind the one that parked its aggregate", attributes...)
	case apply.Gap:
		p.opts.Logger.Debug("event waits for an earlier version", append(attributes, telemetry.KeyDescription, r.Description)...)
	case apply.Pending, apply.Applied, apply.Duplicate:
	}
}
