package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// amqpSession is a session that was accepted over AMQP. The SDK would open five more links for each
// session, in some fifteen round trips; here an accept is one round trip, and the connection and
// its tokens are shared (see the package shared/servicebus).
//
// Guaranteed:
//   - A session's messages are received in the order in which the broker sends them. Messages that
//     have arrived but were not received are released with the session, like those that were
//     received but not settled.
//   - No method waits longer than its context.
//   - Several goroutines may settle at once while another one renews the lock. One at a time
//     receives.
//
// Not guaranteed: that the lock is held. The broker reports a lost lock by closing the link, if the
// network permits.
type amqpSession struct {
	conn        *servicebus.Conn
	entity, id  string
	session     *servicebus.Session
	link        *amqp.Receiver
	lockedUntil time.Time // when it was accepted
	credit      int       // issued, and not yet used by a message; the receiver's alone
	most        int       // count of the last receive; the receiver's alone
	begun       bool      // something has been received; the receiver's alone
	budget      *byteBudget
	backlog     *backlogEstimate
	// broken is set once something has failed on this session, so that its link may be gone;
	// doubtful, once a request was not answered, so that the connection may be gone.
	broken, doubtful atomic.Bool

	mu        sync.Mutex                 // never held while the network is waited for
	unsettled map[[16]byte]*amqp.Message // received, by lock token; guarded by mu
}

// ID returns the session's id.
func (s *amqpSession) ID() string { return s.id }

// LockedUntil returns when the lock ends, by the broker's clock, unless it is renewed; zero if the
// broker does not report it.
func (s *amqpSession) LockedUntil() time.Time { return s.lockedUntil }

// failed records a failure, and whether the broker answered at all.
func (s *amqpSession) failed(err error) {
	s.broken.Store(true)
	if !answered(err) {
		s.doubtful.Store(true)
	}
}

// answered reports whether an error is the broker's answer about a link or a request, so that the
// connection works.
func answered(err error) bool {
	_, closed := errors.AsType[*amqp.ConnError](err)
	_, ended := errors.AsType[*amqp.SessionError](err)
	_, answered := errors.AsType[*amqp.Error](err)
	_, refused := errors.AsType[*servicebus.StatusError](err)
	return !closed && (ended || answered || refused)
}

// receive waits for messages and returns those that have arrived, in order, at least one and at
// most count. It lets the broker send up to count ahead.
func (s *amqpSession) receive(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	if messages, err := s.receiveBuffered(count); len(messages) > 0 || err != nil {
		return messages, err
	}
	first, err := s.link.Receive(ctx, nil)
	if err != nil {
		if ctx.Err() == nil {
			s.failed(err)
		}
		return nil, fmt.Errorf("receive: %w", err)
	}
	messages := s.appendBuffered([]*azservicebus.ReceivedMessage{s.remember(first)}, count)
	s.refill()
	return messages, nil
}

// receiveBuffered returns the messages that have arrived, in order, at most count, without waiting.
// There may be none.
func (s *amqpSession) receiveBuffered(count int) ([]*azservicebus.ReceivedMessage, error) {
	messages := s.appendBuffered(nil, count)
	s.most = count
	return messages, s.giveCredit()
}

// refill issues credit if every requested message has arrived: more may be waiting, which then
// arrive while these are applied. A failure is returned by the next receive.
func (s *amqpSession) refill() {
	if s.credit == 0 {
		_ = s.giveCredit()
	}
}

// giveCredit issues credit, so that the broker sends messages ahead.
func (s *amqpSession) giveCredit() error {
	want := s.budget.allow(s.most) - s.credit
	if want <= 0 {
		return nil
	}
	if err := s.link.IssueCredit(uint32(want)); err != nil {
		s.failed(err)
		return fmt.Errorf("give credit: %w", err)
	}
	s.credit += want
	return nil
}

// receiveMore waits until no message has arrived for the duration quiet, or count messages have,
// and returns them in order.
func (s *amqpSession) receiveMore(ctx context.Context, count int, quiet time.Duration) (messages []*azservicebus.ReceivedMessage) {
	defer s.refill()
	for len(messages) < count {
		waiting, cancel := context.WithTimeout(ctx, quiet)
		next, err := s.link.Receive(waiting, nil)
		cancel()
		if err != nil {
			return messages // if it is more than a timeout, the next receive returns it
		}
		messages = s.appendBuffered(append(messages, s.remember(next)), count)
	}
	return messages
}

// appendBuffered appends the messages that have arrived, in order, up to count messages. It gives
// no credit.
func (s *amqpSession) appendBuffered(messages []*azservicebus.ReceivedMessage, count int) []*azservicebus.ReceivedMessage {
	for len(messages) < count {
		m := s.link.Prefetched()
		if m == nil {
			break
		}
		messages = append(messages, s.remember(m))
	}
	return messages
}

// remember keeps a message until it is settled.
func (s *amqpSession) remember(m *amqp.Message) *azservicebus.ReceivedMessage {
	s.credit--
	received := read(m)
	s.budget.observe(len(received.Body))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled[received.LockToken] = m
	return received
}

// errUnknown is a message that is not this session's to settle.
var errUnknown = errors.New("message was not received on this session, or is settled")

// CompleteMessage removes a message. It takes the SDK's options, which are empty.
func (s *amqpSession) CompleteMessage(ctx context.Context, m *azservicebus.ReceivedMessage, _ *azservicebus.CompleteMessageOptions) error {
	return s.settle(m, func(raw *amqp.Message) error { return s.link.AcceptMessage(ctx, raw) })
}

// DeadLetterMessage moves a message to the dead-letter queue.
func (s *amqpSession) DeadLetterMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.DeadLetterOptions) error {
	why := &amqp.Error{Condition: servicebus.CondDeadLetter, Info: map[string]any{}}
	if o != nil && o.Reason != nil {
		why.Info["DeadLetterReason"] = *o.Reason
	}
	if o != nil && o.ErrorDescription != nil {
		why.Info["DeadLetterErrorDescription"] = *o.ErrorDescription
	}
	return s.settle(m, func(raw *amqp.Message) error { return s.link.RejectMessage(ctx, raw, why) })
}

func (s *amqpSession) settle(m *azservicebus.ReceivedMessage, how func(*amqp.Message) error) error {
	s.mu.Lock()
	raw := s.unsettled[m.LockToken]
	s.mu.Unlock()
	if raw == nil {
		return errUnknown
	}
	if err := how(raw); err != nil {
		s.failed(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsettled, m.LockToken)
	return nil
}

// Renew renews the lock.
func (s *amqpSession) Renew(ctx context.Context) error {
	_, err := s.conn.Manage(ctx, s.entity, "com.microsoft:renew-session-lock", s.link.LinkName(), map[string]any{"session-id": s.id})
	if err != nil && !errors.Is(err, context.Canceled) { // the caller that cancels it releases the session
		s.failed(err)
	}
	return err
}

// Close releases the session, which unlocks its messages without counting a delivery. Nothing else
// may be under way.
func (s *amqpSession) Close(ctx context.Context) error {
	err := s.link.Close(ctx)
	if err == nil && !s.broken.Load() && s.conn.ReturnSession(s.session, s.unsettledDeliveries()) {
		return nil
	}
	return errors.Join(err, end(ctx, s.session))
}

// unsettledDeliveries returns how many messages of a link that is closed came and were not settled.
func (s *amqpSession) unsettledDeliveries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.unsettled)
	for s.link.Prefetched() != nil {
		n++
	}
	return n
}
