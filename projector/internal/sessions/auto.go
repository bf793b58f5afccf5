package sessions

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/projector/internal/direct"
	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Receiver says how sessions are accepted; empty is Auto.
type Receiver string

// The receivers.
const (
	Auto   Receiver = "auto"   // Direct, unless the service refuses it from the start
	Direct Receiver = "direct" // over AMQP
	SDK    Receiver = "sdk"    // through azservicebus
)

// maxRefusals is how many accepts may be refused, when none has ever worked, before we conclude that the service does not understand
// them.
const maxRefusals = 3

// verdict is whether the service understands how sessions are accepted directly; all workers' acceptors share it.
type verdict struct {
	log      *slog.Logger
	worked   atomic.Bool
	refusals atomic.Int32
}

// autoAcceptor accepts directly until the verdict is that the service refuses that.
type autoAcceptor struct {
	verdict *verdict
	direct  acceptor
	sdk     acceptor
}

func (a *autoAcceptor) accept(ctx context.Context) (link, func(context.Context), error) {
	if a.verdict.refused() {
		return a.sdk.accept(ctx)
	}
	l, release, err := a.direct.accept(ctx)
	a.verdict.hear(err)
	return l, release, err
}

func (a *autoAcceptor) close(ctx context.Context) {
	a.direct.close(ctx)
	a.sdk.close(ctx)
}

func (v *verdict) refused() bool { return !v.worked.Load() && v.refusals.Load() >= maxRefusals }

// hear records the outcome of an accept. Any ordinary answer to a request for a session shows that the service understands it.
func (v *verdict) hear(err error) {
	switch {
	case err == nil, errors.Is(err, errNoSession), ordinary(err):
		v.worked.Store(true)
	case !v.worked.Load() && protocol(err):
		if v.refusals.Add(1) == maxRefusals {
			v.log.Error("Service Bus does not understand how sessions are accepted over AMQP; accepting them through the SDK, "+
				"which is slower (SESSION_RECEIVER=sdk does so from the start)", telemetry.KeyError, err)
		}
	}
}

// ordinary says that the broker understood the request and cannot grant a session now.
func ordinary(err error) bool {
	answer, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return false
	}
	switch answer.Condition {
	case servicebus.CondSessionCannotBeLocked, servicebus.CondServerBusy, servicebus.CondSessionLockLost:
		return true
	}
	return false
}

// protocol says that the broker did not understand the request, or we did not understand its answer. Denied access, a missing entity
// and a broker that is away are none of that.
func protocol(err error) bool {
	if errors.Is(err, direct.ErrProtocol) {
		return true
	}
	answer, ok := errors.AsType[*amqp.Error](err)
	return ok && servicebus.NotUnderstood(answer.Condition)
}
