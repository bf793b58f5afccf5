package sessions

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
	// filterName and filterCode request a session in a link's source; the value null requests the
	// next one.
	filterName = "com.microsoft:session-filter"
	// filterCode has no domain and id of 32 bits each, as AMQP's codes have; it is the code that
	// the official clients send and that the service knows.
	filterCode = uint64(0x137000000C)
	// timeoutProperty bounds, in milliseconds, how long the broker waits for a session.
	timeoutProperty = "com.microsoft:timeout"
	// lockedUntilProperty is when the lock ends, in ticks.
	lockedUntilProperty = "com.microsoft:locked-until-utc"
	// answerTime is the part of an accept's time that is left to the broker to answer that there is
	// no session.
	answerTime = 2 * time.Second
	// endTimeout bounds the end of an AMQP session on which a link could not be opened.
	endTimeout = 2 * time.Second
)

var (
	// errUnanswered means that the broker did not answer the request for a session: its time ran
	// out, or the connection ended.
	errUnanswered = errors.New("the request for a session is not answered")
	// errProtocol means that the broker opened a link without naming its session.
	errProtocol = errors.New("the link that was opened names no session")
)

// acceptNext waits until a session with messages is free, and locks it. Errors: [errNoSession] if
// there was none until shortly before ctx's deadline.
func acceptNext(ctx context.Context, conn *servicebus.Conn, entity string) (*amqpSession, error) {
	if err := conn.Claim(ctx, entity); err != nil {
		return nil, err
	}
	session, link, err := open(ctx, conn, entity)
	if err != nil {
		return nil, err
	}
	id, ok := link.LinkSourceFilterValue(filterName).(string)
	if !ok {
		_ = end(ctx, session)
		return nil, fmt.Errorf("%w: its filter holds a %T", errProtocol, link.LinkSourceFilterValue(filterName))
	}
	accepted := &amqpSession{conn: conn, entity: entity, id: id, session: session, link: link, unsettled: map[[16]byte]*amqp.Message{}}
	if ticks, ok := link.Properties()[lockedUntilProperty].(int64); ok {
		accepted.lockedUntil = fromTicks(ticks)
	}
	return accepted, nil
}

// open opens the link for the next session, and returns it with its AMQP session.
func open(ctx context.Context, conn *servicebus.Conn, entity string) (*servicebus.Session, *amqp.Receiver, error) {
	options := &amqp.ReceiverOptions{
		Name:           rand.Text(),
		SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(), // peek-lock
		Credit:         -1,                                  // issued explicitly
		Filters:        []amqp.LinkFilter{amqp.NewLinkFilter(filterName, filterCode, nil)},
	}
	for {
		session, err := conn.Session(ctx)
		if err != nil {
			return nil, nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			wait := time.Until(deadline)
			wait -= min(answerTime, wait/10)
			options.Properties = map[string]any{timeoutProperty: uint32(max(wait.Milliseconds(), 1))}
		}
		link, err := session.NewReceiver(ctx, entity, options)
		if err == nil {
			return session, link, nil
		}
		if _, ended := errors.AsType[*amqp.SessionError](err); ended && session.Used() {
			continue // the broker ended it while it had no link; the others that it ended follow, and then there is a new one
		}
		return nil, nil, refused(ctx, conn, session, err)
	}
}

// refused returns why a link was not opened, and ends or keeps the AMQP session that it was to be
// on.
func refused(ctx context.Context, conn *servicebus.Conn, session *servicebus.Session, err error) error {
	err = fmt.Errorf("open a link for the next session: %w", err)
	if _, ended := errors.AsType[*amqp.ConnError](err); ended {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	if _, ended := errors.AsType[*amqp.SessionError](err); ended {
		return err
	}
	if answer, ok := errors.AsType[*amqp.Error](err); ok {
		if !conn.ReturnSession(session, 0) {
			_ = end(ctx, session)
		}
		if answer.Condition == servicebus.CondTimeout {
			return fmt.Errorf("%w: %w", errNoSession, err)
		}
		return err
	}
	// There was no answer, and the broker may still open the link: the link ends with its AMQP
	// session. Or the broker refused the link without an error. In both cases it answers the end of
	// the session; a broker that is gone does not.
	switch unanswered := end(ctx, session); {
	case unanswered != nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded): // a broker that does not know the timeout property waits longer than this client
		return fmt.Errorf("%w: %w: %w", errNoSession, errUnanswered, err)
	}
	return fmt.Errorf("%w: %w", errNoSession, err)
}

func end(ctx context.Context, session *servicebus.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return session.Close(ctx)
}

// fromTicks converts .NET's time: units of 100 ns since the year 1.
func fromTicks(ticks int64) time.Time {
	const unixEpoch = 621_355_968_000_000_000
	return time.UnixMilli((ticks - unixEpoch) / 10_000).UTC()
}
