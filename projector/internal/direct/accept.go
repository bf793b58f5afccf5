package direct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

const (
	// filterName and filterCode ask for a session in a link's source; the value is null for whichever is next.
	filterName = "com.microsoft:session-filter"
	filterCode = uint64(0x0000_0137_0000_000C)
	// timeoutProperty bounds, in milliseconds, how long the broker waits for a session.
	timeoutProperty = "com.microsoft:timeout"
	// lockedUntilProperty is when the lock ends, in ticks.
	lockedUntilProperty = "com.microsoft:locked-until-utc"
	// answerTime is kept of an accept's time for the broker to answer that there is no session.
	answerTime = 2 * time.Second
	// endTimeout bounds the end of an AMQP session on which a link could not be opened.
	endTimeout = 2 * time.Second
)

// ErrNone means that no session with messages was there.
var ErrNone = errors.New("no session is waiting")

// AcceptNext waits until a session with messages is free, and locks it. Errors: [ErrNone] when there was none until shortly
// before ctx's deadline.
func AcceptNext(ctx context.Context, conn *servicebus.Conn, entity string) (*Session, error) {
	if err := conn.Claim(ctx, entity); err != nil {
		return nil, err
	}
	session, err := conn.Session(ctx)
	if err != nil {
		return nil, err
	}
	options := &amqp.ReceiverOptions{
		Name:           rand.Text(),
		SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(), // peek-lock
		Credit:         -1,                                  // by hand
		Filters:        []amqp.LinkFilter{amqp.NewLinkFilter(filterName, filterCode, nil)},
	}
	if deadline, ok := ctx.Deadline(); ok {
		wait := time.Until(deadline)
		wait -= min(answerTime, wait/10)
		options.Properties = map[string]any{timeoutProperty: uint32(max(wait.Milliseconds(), 1))}
	}
	link, err := session.NewReceiver(ctx, entity, options)
	if err != nil {
		return nil, refused(ctx, conn, session, err)
	}
	id, ok := link.LinkSourceFilterValue(filterName).(string)
	if !ok {
		_ = end(ctx, session)
		return nil, fmt.Errorf("%w: its filter holds a %T", ErrProtocol, link.LinkSourceFilterValue(filterName))
	}
	accepted := &Session{conn: conn, entity: entity, id: id, session: session, link: link, unsettled: map[[16]byte]*amqp.Message{}}
	if ticks, ok := link.Properties()[lockedUntilProperty].(int64); ok {
		accepted.lockedUntil = fromTicks(ticks)
	}
	return accepted, nil
}

// ErrProtocol is a link that the broker opened without saying which session it is for.
var ErrProtocol = errors.New("the link that was opened names no session")

// refused ends or keeps the AMQP session of a link that was not opened, and says why it was not.
func refused(ctx context.Context, conn *servicebus.Conn, session *amqp.Session, err error) error {
	if answer, ok := errors.AsType[*amqp.Error](err); ok {
		conn.ReturnSession(session)
		if answer.Condition == servicebus.CondTimeout {
			return ErrNone
		}
		return fmt.Errorf("open a link for the next session: %w", err)
	}
	// There was no answer, and the broker may still open the link: it ends with its AMQP session. A broker that does not know the
	// timeout property waits longer than we do, but answers the end of the session; a broker that is gone does not.
	if unanswered := end(ctx, session); errors.Is(err, context.DeadlineExceeded) && unanswered == nil {
		return ErrNone
	}
	return fmt.Errorf("open a link for the next session: %w", err)
}

func end(ctx context.Context, session *amqp.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return session.Close(ctx)
}

// fromTicks reads .NET's time: in units of 100 ns since the year 1.
func fromTicks(ticks int64) time.Time {
	const unixEpoch = 621_355_968_000_000_000
	return time.UnixMilli((ticks - unixEpoch) / 10_000).UTC()
}
