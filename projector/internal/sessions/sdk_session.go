package sessions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/semaphore"
)

// ErrBroken means that something failed on this session before: its link may be gone, so it must be
// released.
var ErrBroken = errors.New("session is broken")

// SDKSession guards a session that the SDK has accepted, so that its lock can be renewed while its
// messages are handled. The SDK leaves the renewal to its caller. A renewal writes the end of the
// lock to a field of the receiver, and so does every call that reopens the session's link: a
// settlement, a peek or a renewal reopens it automatically when the link is gone, whatever retries
// the client was given (azservicebus v1.11.0, SessionReceiver.newLink,
// messageSettler.settleWithRetries). Nothing synchronises these writes.
//
// Guaranteed: while the lock is being renewed no other call can open the link. A renewal waits for
// the settlements that are under way, and later settlements wait for the renewal. Not guaranteed:
// that the lock is held, or that the link is the one that the session was accepted on.
//
// Methods except ReceiveMessages may be called by several goroutines at once.
type SDKSession struct {
	receiver *azservicebus.SessionReceiver
	// using is held by every call that may open the link: whole by a renewal, one each by the
	// others. It waits on channels, not on a mutex, so that a context ends the wait.
	using *semaphore.Weighted
	// broken is set once a call that may open the link has failed, perhaps halfway. Receive would
	// then open it, unguarded.
	broken atomic.Bool
}

const whole = math.MaxInt64

// NewSDKSession guards a session, which must only be used through the guard from then on.
func NewSDKSession(receiver *azservicebus.SessionReceiver) *SDKSession {
	return &SDKSession{receiver: receiver, using: semaphore.NewWeighted(whole)}
}

// ID returns the session's id.
func (s *SDKSession) ID() string { return s.receiver.SessionID() }

// LockedUntil returns when the lock ends, by the broker's clock. It may be called before the first
// renewal only.
func (s *SDKSession) LockedUntil() time.Time { return s.receiver.LockedUntil() }

// ReceiveMessages receives as the SDK does, or fails with [ErrBroken].
func (s *SDKSession) ReceiveMessages(
	ctx context.Context, count int, o *azservicebus.ReceiveMessagesOptions,
) ([]*azservicebus.ReceivedMessage, error) {
	if s.broken.Load() {
		return nil, ErrBroken
	}
	return s.receiver.ReceiveMessages(ctx, count, o)
}

// PeekMessages peeks as the SDK does.
func (s *SDKSession) PeekMessages(
	ctx context.Context, count int, o *azservicebus.PeekMessagesOptions,
) (messages []*azservicebus.ReceivedMessage, err error) {
	err = s.use(ctx, 1, func() error {
		messages, err = s.receiver.PeekMessages(ctx, count, o)
		return err
	})
	return messages, err
}

// CompleteMessage completes as the SDK does.
func (s *SDKSession) CompleteMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.CompleteMessageOptions) error {
	return s.use(ctx, 1, func() error { return s.receiver.CompleteMessage(ctx, m, o) })
}

// DeadLetterMessage dead-letters as the SDK does.
func (s *SDKSession) DeadLetterMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.DeadLetterOptions) error {
	return s.use(ctx, 1, func() error { return s.receiver.DeadLetterMessage(ctx, m, o) })
}

// Renew renews the lock, after the calls that are under way. It fails with [ErrBroken] if one of
// them has failed.
func (s *SDKSession) Renew(ctx context.Context) error {
	return s.use(ctx, whole, func() error {
		if s.broken.Load() {
			return ErrBroken
		}
		return s.receiver.RenewSessionLock(ctx, nil)
	})
}

// Broken reports whether something failed on this session, so that its link, or the connection, may
// be gone.
func (s *SDKSession) Broken() bool { return s.broken.Load() }

// Close releases the session, which unlocks its messages. No other call may be in progress.
func (s *SDKSession) Close(ctx context.Context) error { return s.receiver.Close(ctx) }

func (s *SDKSession) use(ctx context.Context, weight int64, call func() error) error {
	if err := s.using.Acquire(ctx, weight); err != nil {
		return fmt.Errorf("wait for others that use the session: %w", err)
	}
	defer s.using.Release(weight)
	err := call()
	if err != nil && !errors.Is(err, context.Canceled) { // the caller that cancels it releases the session
		s.broken.Store(true)
	}
	return err
}
