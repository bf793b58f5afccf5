package sessions

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Receiver is how sessions are accepted; empty is Auto.
type Receiver string

// The receivers.
const (
	Auto   Receiver = "auto"   // Direct, unless the service refuses it from the start
	Direct Receiver = "direct" // over AMQP
	SDK    Receiver = "sdk"    // through azservicebus
)

// maxRefusals is how many accepts may be refused, one after the other and when none has ever
// worked, before we conclude that the service does not understand them.
const maxRefusals = 3

// compatibility is whether the service understands how sessions are accepted directly; all workers'
// acceptors share it.
type compatibility struct {
	log    *slog.Logger
	worked atomic.Bool

	mu       sync.Mutex
	refusals int       // each began after the one before; guarded by mu
	last     time.Time // the last one was counted; guarded by mu
}

// autoAcceptor accepts directly until the verdict is that the service refuses that.
type autoAcceptor struct {
	compatibility *compatibility
	direct        acceptor
	sdk           acceptor
}

func (a *autoAcceptor) accept(ctx context.Context) (link, func(context.Context), error) {
	if a.compatibility.refused() {
		return a.sdk.accept(ctx)
	}
	began := time.Now()
	l, release, err := a.direct.accept(ctx)
	a.compatibility.record(began, err)
	return l, release, err
}

func (a *autoAcceptor) close(ctx context.Context) {
	a.direct.close(ctx)
	a.sdk.close(ctx)
}

func (c *compatibility) refused() bool {
	if c.worked.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusals >= maxRefusals
}

// record records the outcome of an accept. Only the broker's own answer proves that it understands
// the request: a session, or that no session is waiting. Concurrent accepts count as one refusal,
// because one cause may have ended all of them.
func (c *compatibility) record(began time.Time, err error) {
	if answer, ok := errors.AsType[*amqp.Error](err); err == nil || ok && answer.Condition == servicebus.CondTimeout {
		c.worked.Store(true)
		return
	}
	if c.worked.Load() || !refusal(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusals >= maxRefusals || !began.After(c.last) {
		return
	}
	c.last = time.Now()
	if c.refusals++; c.refusals == maxRefusals {
		c.log.Error("Service Bus does not understand how sessions are accepted over AMQP; accepting them through the SDK, "+
			"which is slower (SESSION_RECEIVER=sdk does so from the start)", telemetry.KeyError, err)
	}
}

// refusal reports whether the broker did not understand the request, or its answer was not
// understood here, which ends the connection. Denied access, a missing entity, an unavailable
// broker and a connection that the broker closes for reasons of its own are not refusals.
func refusal(err error) bool {
	answer, answered := errors.AsType[*amqp.Error](err)
	switch {
	case errors.Is(err, errProtocol):
		return true
	case errors.Is(err, errUnanswered):
		return !answered || answer.Condition != amqp.ErrCondConnectionForced
	}
	return answered && servicebus.NotUnderstood(answer.Condition)
}
