package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// fakeConn is something that is opened and closed.
type fakeConn struct{ dead, shut bool }

func newShared() *sharedConn[*fakeConn] {
	return &sharedConn[*fakeConn]{
		open:    func(context.Context) (*fakeConn, error) { return &fakeConn{}, nil },
		alive:   func(c *fakeConn) bool { return !c.dead },
		shut:    func(_ context.Context, c *fakeConn) { c.shut = true },
		within:  time.Second,
		opening: make(chan struct{}, 1),
	}
}

func take(t *testing.T, s *sharedConn[*fakeConn]) *use[*fakeConn] {
	t.Helper()
	u, err := s.acquire(t.Context())
	require.NoError(t, err)
	return u
}

// A connection on which something broke gets no new users, and is closed when its last user is
// done.
func TestABrokenConnectionIsReplacedAndClosedLater(t *testing.T) {
	s := newShared()
	first, second := take(t, s), take(t, s)
	require.Same(t, first.conn, second.conn)

	first.release(t.Context(), true)
	third := take(t, s)
	require.NotSame(t, second.conn, third.conn)
	s.closing.Wait()
	require.False(t, second.conn.shut, "closed while it is used")

	second.release(t.Context(), true)
	s.closing.Wait()
	require.True(t, second.conn.shut)
	fourth := take(t, s)
	require.Same(t, third.conn, fourth.conn, "the end of an old connection is not that of the new one")

	third.release(t.Context(), false)
	fourth.release(t.Context(), false)
	s.closing.Wait()
	require.False(t, third.conn.shut, "kept for the next one")
	s.close(t.Context())
	require.True(t, third.conn.shut)
}

func TestAnUnusedConnectionThatBrokeIsReplaced(t *testing.T) {
	s := newShared()
	first := take(t, s)
	first.release(t.Context(), false)
	first.conn.dead = true
	second := take(t, s)
	require.NotSame(t, first.conn, second.conn)
	s.closing.Wait()
	require.True(t, first.conn.shut)
	second.release(t.Context(), false)
	s.close(t.Context())
}

func TestALinkThatCannotBeOpenedIsAnError(t *testing.T) {
	s, broken := newShared(), errors.New("no such namespace")
	s.open = func(context.Context) (*fakeConn, error) { return nil, broken }
	_, err := s.acquire(t.Context())
	require.ErrorIs(t, err, broken)
}

// A caller that waits while another one opens a connection waits no longer than its context.
func TestTheWaitForAConnectionEndsWithItsContext(t *testing.T) {
	s, opening, goOn := newShared(), make(chan struct{}), make(chan struct{})
	s.open = func(context.Context) (*fakeConn, error) {
		close(opening)
		<-goOn
		return &fakeConn{}, nil
	}
	var first sync.WaitGroup
	first.Go(func() { _, _ = s.acquire(t.Context()) })
	<-opening
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.acquire(cancelled)
	require.ErrorIs(t, err, context.Canceled)
	close(goOn)
	first.Wait()
}

func TestOnlyALostConnectionIsInDoubt(t *testing.T) {
	require.True(t, lost(&azservicebus.Error{Code: azservicebus.CodeConnectionLost}))
	require.False(t, lost(&azservicebus.Error{Code: azservicebus.CodeTimeout}))
	require.False(t, lost(&azservicebus.Error{Code: azservicebus.CodeUnauthorizedAccess}))
	require.False(t, lost(nil))
}

// scripted answers accepts, one after the other, and then with nothing.
type scripted struct{ answers []error }

func (s *scripted) accept(context.Context) (link, func(context.Context), error) {
	if len(s.answers) == 0 {
		return nil, nil, errNoSession
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return nil, nil, next
}

func (*scripted) close(context.Context) {}

func TestTheSDKReplacesOnlyLinksThatTheServiceNeverUnderstood(t *testing.T) {
	refusal := &amqp.Error{Condition: amqp.ErrCondNotImplemented}
	none := &amqp.Error{Condition: servicebus.CondTimeout}
	unanswered := fmt.Errorf("%w: %w: %w", errNoSession, errUnanswered, context.DeadlineExceeded)
	unreadable := fmt.Errorf("%w: %w", errUnanswered, &amqp.ConnError{})
	forced := fmt.Errorf("%w: %w", errUnanswered, &amqp.ConnError{RemoteErr: &amqp.Error{Condition: amqp.ErrCondConnectionForced}})
	through := errors.New("through the SDK")
	for name, test := range map[string]struct {
		answers []error
		want    error
	}{
		"refused three times":                         {[]error{refusal, refusal, errProtocol}, through},
		"refused after one that worked":               {[]error{none, refusal, refusal, unreadable}, errNoSession},
		"refused twice":                               {[]error{refusal, refusal}, errNoSession},
		"never answered":                              {[]error{unanswered, unanswered, unanswered}, through},
		"answered with what ends it":                  {[]error{unreadable, unreadable, unreadable}, through},
		"connection closed for reasons of the broker": {[]error{forced, forced, forced}, errNoSession},
		"busy at first, which proves nothing":         {[]error{&amqp.Error{Condition: servicebus.CondServerBusy}, refusal, refusal, refusal}, through},
		"refused without an error":                    {[]error{errNoSession, errNoSession, errNoSession, refusal, refusal}, errNoSession},
		"not let in, not there, nor near": {[]error{
			&amqp.Error{Condition: amqp.ErrCondUnauthorizedAccess}, &amqp.Error{Condition: amqp.ErrCondNotFound},
			context.DeadlineExceeded, &amqp.ConnError{},
		}, errNoSession},
	} {
		t.Run(name, func(t *testing.T) {
			a := &autoAcceptor{
				compatibility: &compatibility{log: slog.New(slog.DiscardHandler)},
				direct:        &scripted{answers: test.answers}, sdk: &scripted{answers: []error{through}},
			}
			for range test.answers {
				_, _, err := a.accept(t.Context())
				require.NotErrorIs(t, err, through)
			}
			_, _, err := a.accept(t.Context())
			require.ErrorIs(t, err, test.want)
		})
	}
}

func TestRefusalsOfAcceptsThatWereUnderWayTogetherAreOne(t *testing.T) {
	v := &compatibility{log: slog.New(slog.DiscardHandler)}
	began := time.Now()
	for range 2 * maxRefusals {
		v.record(began, errUnanswered)
	}
	require.False(t, v.refused())
}
