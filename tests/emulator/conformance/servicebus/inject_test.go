package servicebus_test

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// Each fault, injected with certainty, gives the client the expected error, and lets the operation
// happen or not, as expected.
func TestEveryFaultStrikesEveryOperation(t *testing.T) {
	const happened, not = true, false
	type result struct {
		err      error
		happened bool
	}
	// Each does one operation with the faults in force, and returns the result.
	operations := map[string]func(w *world, inject func() func()) result{
		"send": func(w *world, inject func() func()) result {
			s := w.sender(topic)
			defer inject()()
			err := s.SendMessage(within(w.t, time.Second), message("a", "1"), nil)
			return result{err, w.server.Stats(topic).Accepted > 0}
		},
		"receive": func(w *world, inject func() func()) result {
			w.send(queue, message("", "1"))
			r := w.queueReceiver(queue, nil)
			defer inject()()
			ms, err := r.ReceiveMessages(within(w.t, time.Second), 1, nil)
			return result{err, len(ms) > 0}
		},
		"settle": func(w *world, inject func() func()) result {
			w.send(queue, message("", "1"))
			r := w.queueReceiver(queue, nil)
			m := w.receive(r, 1)[0]
			defer inject()()
			err := r.CompleteMessage(within(w.t, time.Second), m, nil)
			return result{err, w.server.Stats(queue).Completed > 0}
		},
		"accept": func(w *world, inject func() func()) result {
			defer inject()()
			r, err := w.client.AcceptSessionForQueue(within(w.t, time.Second), sessionQueue, "a", nil)
			return result{err, r != nil}
		},
		"manage": func(w *world, inject func() func()) result {
			r, err := w.client.AcceptSessionForQueue(w.t.Context(), sessionQueue, "a", nil)
			require.NoError(w.t, err)
			end := inject()
			err = r.SetSessionState(within(w.t, time.Second), []byte("x"), nil)
			end()
			_ = r.Close(within(w.t, time.Second)) // its link may be gone
			again, acceptErr := w.connect(nil).AcceptSessionForQueue(w.t.Context(), sessionQueue, "a", nil)
			require.NoError(w.t, acceptErr)
			state, stateErr := again.GetSessionState(w.t.Context(), nil)
			require.NoError(w.t, stateErr)
			return result{err, state != nil}
		},
	}
	faultsOf := map[string]func(servicebus.Fault) servicebus.Faults{
		"send":    func(f servicebus.Fault) servicebus.Faults { return servicebus.Faults{Send: f} },
		"receive": func(f servicebus.Fault) servicebus.Faults { return servicebus.Faults{Receive: f} },
		"settle":  func(f servicebus.Fault) servicebus.Faults { return servicebus.Faults{Settle: f} },
		"accept":  func(f servicebus.Fault) servicebus.Faults { return servicebus.Faults{Accept: f} },
		"manage":  func(f servicebus.Fault) servicebus.Faults { return servicebus.Faults{Manage: f} },
	}
	for fault, test := range map[string]struct {
		fault servicebus.Fault
		want  map[string]bool
	}{
		"drop":     {servicebus.Fault{Drop: 1}, map[string]bool{"send": not, "receive": not, "settle": not, "accept": not, "manage": not}},
		"busy":     {servicebus.Fault{Busy: 1}, map[string]bool{"send": not, "receive": not, "settle": not, "accept": not, "manage": not}},
		"lose ack": {servicebus.Fault{LoseAck: 1}, map[string]bool{"send": happened, "receive": not, "settle": happened, "accept": not, "manage": happened}},
		"detach":   {servicebus.Fault{Detach: 1}, map[string]bool{"send": happened, "receive": not, "settle": happened, "accept": happened, "manage": happened}},
	} {
		for operation, want := range test.want {
			t.Run(fault+" "+operation, func(t *testing.T) {
				inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
					got := operations[operation](w, func() func() { return w.server.Inject(faultsOf[operation](test.fault)) })
					require.Equal(t, want, got.happened, got.err)
					switch operation {
					case "receive": // the SDK returns nothing and no error, and opens the link again
					case "accept":
						require.Equal(t, want, got.err == nil, "what is granted and then taken away shows later")
					default:
						require.Error(t, got.err)
					}
				})
			})
		}
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Each operation takes its own delay and, in virtual time, no longer.
func TestDelaysAreThoseOfTheirOperation(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		slow := func(n time.Duration) servicebus.Fault { return servicebus.Fault{Delay: n * time.Second} }
		s := w.sender(topic)
		require.NoError(t, s.SendMessage(t.Context(), message("a", "1"), nil)) // opens the link
		end := w.server.Inject(servicebus.Faults{Send: slow(1), Receive: slow(2), Settle: slow(3), Accept: slow(4), Manage: slow(5)})
		took := func(what string, want time.Duration, f func()) {
			t.Helper()
			start := time.Now()
			f()
			require.Equal(t, want, time.Since(start).Truncate(time.Second), what)
		}
		took("eight sends at once wait together", time.Second, func() {
			done := make(chan error)
			for i := range 8 {
				go func() { done <- s.SendMessage(t.Context(), message("a", string(rune('b'+i))), nil) }()
			}
			for range 8 {
				require.NoError(t, <-done)
			}
		})
		var r *azservicebus.SessionReceiver
		took("accept", 4*time.Second, func() { r = w.accept("a") })
		var ms []*azservicebus.ReceivedMessage
		took("receive", 2*time.Second, func() { ms = w.receive(r, 9) })
		took("settle", 3*time.Second, func() { w.complete(r, ms[0]) })
		took("manage", 5*time.Second, func() { require.NoError(t, r.RenewSessionLock(t.Context(), nil)) })
		end()
		took("nothing is slow any more", 0, func() { w.complete(r, ms[1:]...) })
	})
}

// An answer takes between the delay and the sum of delay and jitter.
func TestDelaysJitterWithTheirSeed(t *testing.T) {
	times := func(seed uint64) (out []time.Duration) {
		inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
			s := w.sender(queue)
			require.NoError(t, s.SendMessage(t.Context(), message("", "1"), nil))
			w.server.Inject(servicebus.Faults{Seed: seed, Send: servicebus.Fault{Delay: time.Second, Jitter: time.Second}})
			for range 5 {
				start := time.Now()
				require.NoError(t, s.SendMessage(t.Context(), message("", "2"), nil))
				took := time.Since(start)
				require.GreaterOrEqual(t, took, time.Second)
				require.LessOrEqual(t, took, 2*time.Second)
				out = append(out, took)
			}
		})
		return out
	}
	require.Equal(t, times(1), times(1))
	require.NotEqual(t, times(1), times(2))
}

func TestThrottlingLetsSoManyThroughASecond(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		c := w.connect(&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
		s, err := c.NewSender(topic, nil)
		require.NoError(t, err)
		w.server.Inject(servicebus.Faults{Send: servicebus.Fault{PerSecond: 5}})
		require.NoError(t, sendBatchOn(t.Context(), s, numbered("a", 3)))
		require.NoError(t, sendBatchOn(t.Context(), s, numbered("b", 2)))
		err = s.SendMessage(t.Context(), message("c", "c"), nil)
		require.Equal(t, "com.microsoft:server-busy", condition(t, err))
		require.ErrorContains(t, err, "50002")
		time.Sleep(time.Second)
		require.NoError(t, sendBatchOn(t.Context(), s, numbered("d", 9)), "a batch above the limit goes through alone")
		require.Equal(t, "com.microsoft:server-busy", condition(t, s.SendMessage(t.Context(), message("c", "c"), nil)))
	})
}

// A session that was released may be locked for a moment longer.
func TestAReleasedSessionIsNotFreeAtOnce(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		end := w.server.Inject(servicebus.Faults{ReleaseLag: 100 * time.Millisecond})
		w.send(topic, message("a", "1"))
		w.close(w.acceptNext())
		_, err := w.client.AcceptSessionForSubscription(t.Context(), topic, subscription, "a", nil)
		require.Equal(t, "com.microsoft:session-cannot-be-locked", condition(t, err))
		start := time.Now()
		r := w.acceptNext()
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		require.Equal(t, []uint32{1}, counts(w.receive(r, 1)))
		end()
		w.close(r)
		w.close(w.accept("a"))
	})
}

// An AMQP session may end with all its links while its connection stays.
func TestAnAMQPSessionMayEndAsAWhole(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		x := newCBS(t, w)
		require.EqualValues(t, 202, x.put("jwt", "amqp://emulator/"+queue, "a.b.c", time.Now().Add(24*time.Hour)))
		s, err := x.session.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		other, err := x.session.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		end := w.server.Inject(servicebus.Faults{Send: servicebus.Fault{End: 1}})
		var ended *amqp.SessionError
		require.ErrorAs(t, s.Send(t.Context(), amqp.NewMessage([]byte("x")), nil), &ended)
		require.Equal(t, amqp.ErrCondDetachForced, ended.RemoteErr.Condition)
		end()
		require.ErrorAs(t, other.Send(t.Context(), amqp.NewMessage([]byte("x")), nil), &ended)
		require.Equal(t, 1, w.server.Stats(queue).Accepted, "what was sent is stored, and not answered")
		session, err := x.conn.NewSession(t.Context(), nil)
		require.NoError(t, err)
		s, err = session.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		require.NoError(t, s.Send(t.Context(), amqp.NewMessage([]byte("x")), nil))
	})
}

func TestLostLocksAreRedelivered(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "1"))
		w.send(topic, message("a", "2"))
		end := w.server.Inject(servicebus.Faults{LoseLock: 1})
		plain := w.queueReceiver(queue, nil)
		require.Equal(t, azservicebus.CodeLockLost, code(t, plain.CompleteMessage(t.Context(), w.receive(plain, 1)[0], nil)))
		session := w.accept("a")
		require.Error(t, session.CompleteMessage(within(t, time.Second), w.receive(session, 1)[0], nil))
		end()
		for _, m := range append(w.receive(plain, 1), w.receive(w.accept("a"), 1)...) {
			require.EqualValues(t, 2, m.DeliveryCount, m.MessageID)
		}
	})
}

// The delays of several sets of faults add up, and the end of one set does not end another.
func TestSetsOfFaultsAddUp(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		s := w.sender(queue)
		require.NoError(t, s.SendMessage(t.Context(), message("", "1"), nil))
		slow := servicebus.Faults{Send: servicebus.Fault{Delay: time.Second}}
		first, second := w.server.Inject(slow), w.server.Inject(slow)
		for _, want := range []time.Duration{2 * time.Second, time.Second, 0} {
			start := time.Now()
			require.NoError(t, s.SendMessage(t.Context(), message("", "2"), nil))
			require.Equal(t, want, time.Since(start))
			if want == 2*time.Second {
				first()
			} else {
				second()
			}
		}
	})
}
