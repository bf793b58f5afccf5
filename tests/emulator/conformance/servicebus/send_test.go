package servicebus_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func TestDuplicatesAreDroppedWithinTheWindow(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		var seen []servicebus.Accepted
		w.server.Observe(func(a servicebus.Accepted) { seen = append(seen, a) })
		w.send(topic, message("a", "1"))
		time.Sleep(40 * time.Second)
		w.send(topic, message("b", "1"), message("a", "2")) // the session makes no difference
		time.Sleep(19 * time.Second)
		w.send(topic, message("a", "1"))
		time.Sleep(time.Second) // a duplicate does not extend the window
		w.send(topic, message("a", "1"))
		virtualtime.Wait()
		s := w.server.Stats(topic)
		require.Equal(t, 3, s.Accepted)
		require.Equal(t, 2, s.Duplicates)
		r := w.accept("a")
		require.Equal(t, []string{"1", "2", "1"}, ids(w.receive(r, 3)))
		var marks []bool
		for _, a := range seen {
			marks = append(marks, a.Duplicate)
		}
		require.Equal(t, []bool{false, true, false, true, false}, marks)
	})
}

func TestQueueWithoutDetectionKeepsDuplicates(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "1"), message("", "1"))
		require.Equal(t, []string{"1", "1"}, ids(w.receive(w.queueReceiver(queue, nil), 2)))
	})
}

func TestSessionAndPartitionKeyMustBeEqual(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		odd := message("a", "2")
		odd.PartitionKey = new("b")
		err := sendBatch(t.Context(), w.sender(topic), message("a", "1"), odd)
		require.Equal(t, "amqp:not-allowed", condition(t, err))
		require.Zero(t, w.server.Stats(topic).Accepted, "a batch is all or nothing")
		w.send(topic, message("a", "1")) // nor did it leave an id behind for duplicate detection
		require.Equal(t, 1, w.server.Stats(topic).Accepted)
	})
}

func TestMessageWithoutSession(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		err := sendBatch(t.Context(), w.sender(sessionQueue), message("", "1"))
		require.Equal(t, "amqp:not-allowed", condition(t, err), "a queue refuses it")
		w.send(topic, message("", "1"))
		dead := w.server.PeekDeadLetters(subPath, 10)
		require.Len(t, dead, 1, "a topic takes it and the subscription dead-letters it")
		require.Equal(t, "Session id is null.", dead[0].Reason)
		require.Zero(t, w.server.Stats(subPath).Active)
	})
}

func TestSizeLimits(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		s := w.sender(topic)
		b, err := s.NewMessageBatch(t.Context(), nil)
		require.NoError(t, err)
		m := message("a", "1")
		m.Body = make([]byte, 256<<10)
		require.ErrorIs(t, b.AddMessage(m, nil), azservicebus.ErrMessageTooLarge)
		require.ErrorIs(t, s.SendMessage(t.Context(), m, nil), azservicebus.ErrMessageTooLarge)
		m = message("a", strings.Repeat("é", 128))
		require.NoError(t, s.SendMessage(t.Context(), m, nil))
		m = message(strings.Repeat("s", 129), "2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, s.SendMessage(ctx, m, nil))
		require.Equal(t, 1, w.server.Stats(topic).Accepted)
	})
}

// A property has at most 32 KB, and all of a message together 64 KB. The service refuses more with
// the condition that asks to retry.
func TestPropertyLimits(t *testing.T) {
	const kb = 1 << 10
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		once := w.connect(&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
		for name, test := range map[string]struct {
			change func(*azservicebus.Message)
			want   string
		}{
			"one at the limit": {func(m *azservicebus.Message) { m.ApplicationProperties["p"] = strings.Repeat("x", 32*kb) }, ""},
			"one above it":     {func(m *azservicebus.Message) { m.ApplicationProperties["p"] = strings.Repeat("x", 32*kb+1) }, "'p' takes 32769 bytes"},
			"bytes":            {func(m *azservicebus.Message) { m.ApplicationProperties["b"] = make([]byte, 40*kb) }, "'b' takes 40960 bytes"},
			"subject":          {func(m *azservicebus.Message) { m.Subject = new(strings.Repeat("x", 33*kb)) }, "'Subject' takes 33792 bytes"},
			"together": {func(m *azservicebus.Message) {
				for _, name := range []string{"p", "q", "r"} {
					m.ApplicationProperties[name] = strings.Repeat("x", 22*kb)
				}
			}, "bytes together, and may take 65536"},
			"a body may be larger": {func(m *azservicebus.Message) { m.Body = make([]byte, 200*kb) }, ""},
		} {
			m := message("", name)
			m.ApplicationProperties = map[string]any{}
			test.change(m)
			s, err := once.NewSender(queue, nil)
			require.NoError(t, err)
			err = s.SendMessage(within(t, time.Minute), m, nil)
			if test.want == "" {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorContains(t, err, "amqp:internal-error", name)
			require.ErrorContains(t, err, test.want, name)
		}
		require.Equal(t, 2, w.server.Stats(queue).Accepted)
	})
}

// A batch is limited to one megabyte, however large single messages may be, as in the Premium tier.
func TestABatchIsLimitedToOneMegabyte(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{MaxMessageBytes: 4 << 20, Premium: true}, func(t *testing.T, w *world) {
		s := w.sender(queue)
		large := message("", "large")
		large.Body = make([]byte, 3<<20)
		require.NoError(t, s.SendMessage(t.Context(), large, nil))
		b, err := s.NewMessageBatch(t.Context(), nil)
		require.NoError(t, err)
		require.ErrorIs(t, b.AddMessage(large, nil), azservicebus.ErrMessageTooLarge)
		b, err = s.NewMessageBatch(t.Context(), &azservicebus.MessageBatchOptions{MaxBytes: 2 << 20})
		require.NoError(t, err)
		for range 2 {
			m := message("", "half")
			m.Body = make([]byte, 700<<10)
			require.NoError(t, b.AddMessage(m, nil))
		}
		err = s.SendMessageBatch(t.Context(), b, nil)
		require.Equal(t, "amqp:not-allowed", condition(t, err))
		require.ErrorContains(t, err, "and may take 1048576", "the link is detached with it")
		require.Equal(t, 1, w.server.Stats(queue).Accepted)
	})
}

// The limit of a batch is stated only if so configured: the service began to state it in the spring
// of 2026.
func TestTheLimitOfABatchIsStatedOrNot(t *testing.T) {
	for name, c := range map[string]struct {
		omit bool
		want any
	}{"stated, as a long": {false, int64(1 << 20)}, "not stated": {true, nil}} {
		t.Run(name, func(t *testing.T) {
			options := servicebus.Options{MaxMessageBytes: 4 << 20, Premium: true, OmitBatchLimit: c.omit}
			inBubble(t, standard(), options, func(t *testing.T, w *world) {
				s := senderTo(t, w, queue)
				require.Equal(t, c.want, s.Properties()["com.microsoft:max-message-batch-size"])
				require.Equal(t, uint64(4<<20), s.MaxMessageSize())
				var refused *amqp.Error
				require.ErrorAs(t, s.Send(t.Context(), &amqp.Message{Format: 0x80013700, Properties: &amqp.MessageProperties{MessageID: "none"}}, nil), &refused)
				require.Equal(t, amqp.ErrCondNotAllowed, refused.Condition)
				require.Contains(t, refused.Description, "holds no message")
				require.Error(t, s.Send(t.Context(), amqp.NewMessage(nil), nil), "the link is gone")
			})
		})
	}
}

// senderTo opens a link of its own to an entity, which the caller may use for anything.
func senderTo(t *testing.T, w *world, entity string) *amqp.Sender {
	t.Helper()
	x := newCBS(t, w)
	require.EqualValues(t, 202, x.put("jwt", "amqp://emulator/"+entity, "a.b.c", time.Now().Add(24*time.Hour)))
	s, err := x.session.NewSender(t.Context(), entity, nil)
	require.NoError(t, err)
	return s
}

func TestLargeMessageCrossesManyFrames(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		m := message("a", "big")
		m.Body = nil
		for i := range 200 << 10 {
			m.Body = append(m.Body, byte(i*7))
		}
		w.send(topic, m)
		require.NoError(t, w.sender(topic).SendMessage(t.Context(), message("a", "small"), nil))
		r := w.accept("a")
		got := w.receive(r, 2)
		require.True(t, bytes.Equal(m.Body, got[0].Body))
		require.Equal(t, []string{"big", "small"}, ids(got))
		w.complete(r, got...)
	})
}

func TestEverythingOfAMessageArrives(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		sent := &azservicebus.Message{
			Body: []byte("body"), MessageID: new("id"), SessionID: new("s"), PartitionKey: new("s"),
			Subject: new("subject"), ContentType: new("application/json"), CorrelationID: new("corr"),
			To: new("to"), ReplyTo: new("reply"), ReplyToSessionID: new("rs"), TimeToLive: new(time.Hour),
			ApplicationProperties: map[string]any{
				"string": "x", "int": int32(-5), "long": int64(1) << 40, "bool": true, "float": 1.5,
				"time": time.UnixMilli(1700000000123), "bytes": []byte{1, 2},
			},
		}
		w.send(topic, sent)
		got := w.receive(w.accept("s"), 1)[0]
		back := got.Message()
		back.ScheduledEnqueueTime = nil
		require.Equal(t, sent, back)
		require.WithinDuration(t, time.Now(), *got.EnqueuedTime, time.Second)
		require.Equal(t, int64(1), *got.SequenceNumber)
		require.Equal(t, int64(1), *got.EnqueuedSequenceNumber, "a subscription states the topic's, even if it is the same")
		require.NotZero(t, got.LockToken)
		require.Equal(t, 9999, got.LockedUntil.UTC().Year(), "the session is locked, not the message")
	})
}

// The messages of a queue have no enqueued sequence number: the SDK's own tests compare all
// annotations of one.
func TestAQueueDoesNotRepeatItsNumber(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "1"))
		got := w.receive(w.queueReceiver(queue, nil), 1)[0]
		require.Equal(t, int64(1), *got.SequenceNumber)
		require.Nil(t, got.EnqueuedSequenceNumber)
		require.WithinDuration(t, time.Now().Add(30*time.Second), *got.LockedUntil, 0)
	})
}

func TestExpiredMessageIsGone(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		short := message("", "1")
		short.TimeToLive = new(time.Second)
		w.send(queue, short, message("", "2"))
		time.Sleep(time.Second)
		require.Equal(t, []string{"2"}, ids(w.receive(w.queueReceiver(queue, nil), 1)))
		require.Equal(t, 1, w.server.Stats(queue).Expired)
	})
}

func TestEntityCapsTimeToLive(t *testing.T) {
	cfg := standard()
	cfg.Queues[0].DefaultMessageTimeToLive = time.Minute
	cfg.Queues[0].DeadLetteringOnMessageExpiration = true
	inBubble(t, cfg, servicebus.Options{}, func(t *testing.T, w *world) {
		long := message("", "1")
		long.TimeToLive = new(time.Hour)
		w.send(queue, long, message("", "2"))
		r := w.queueReceiver(queue, nil)
		require.Equal(t, time.Minute, *w.receive(r, 1)[0].TimeToLive)
		w.close(r)
		time.Sleep(time.Minute)
		w.nothing(w.queueReceiver(queue, nil))
		dead := w.server.PeekDeadLetters(queue, 10)
		require.Len(t, dead, 2)
		require.Equal(t, "TTLExpiredException", dead[0].Reason)
	})
}

// A receiver that waits at the dead-letter queue gets messages as soon as they expire.
func TestMessagesExpireWithoutReceivers(t *testing.T) {
	cfg := standard()
	cfg.Topics[0].Subscriptions[0].DeadLetteringOnMessageExpiration = true
	inBubble(t, cfg, servicebus.Options{}, func(t *testing.T, w *world) {
		short := message("a", "1")
		short.TimeToLive = new(time.Minute)
		sent := time.Now()
		w.send(topic, short, message("a", "2"))
		dead, err := w.client.NewReceiverForSubscription(topic, subscription, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		require.NoError(t, err)
		m := w.receive(dead, 1)[0]
		require.Equal(t, time.Minute, time.Since(sent).Truncate(time.Second))
		require.Equal(t, "TTLExpiredException", *m.DeadLetterReason)
		s := w.server.Stats(subPath)
		require.Equal(t, []int{1, 1, 1, 1}, []int{s.Active, s.Expired, s.DeadLettered, s.ReadySessions})
		require.Equal(t, []string{"2"}, ids(w.receive(w.accept("a"), 1)))
	})
}

func TestScheduledMessagesAppearInTimeAndCanBeCancelled(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		s := w.sender(queue)
		at := time.Now().Add(time.Minute)
		seqs, err := s.ScheduleMessages(t.Context(), []*azservicebus.Message{message("", "1"), message("", "2")}, at, nil)
		require.NoError(t, err)
		require.Len(t, seqs, 2)
		require.NoError(t, s.CancelScheduledMessages(t.Context(), seqs[:1], nil))
		r := w.queueReceiver(queue, nil)
		w.nothing(r)
		require.Equal(t, []string{"2"}, ids(w.receive(r, 1)))
		require.False(t, time.Now().Before(at))
	})
}

func TestPartitionedEntityRefusesMixedBatches(t *testing.T) {
	cfg := standard()
	cfg.Topics[0].EnablePartitioning = true
	inBubble(t, cfg, servicebus.Options{}, func(t *testing.T, w *world) {
		err := sendBatch(t.Context(), w.sender(topic), message("a", "1"), message("b", "2"))
		require.Equal(t, "amqp:not-allowed", condition(t, err))
		w.send(topic, message("a", "1"), message("a", "2"))
		w.send(topic, message("b", "1")) // another partition: no duplicate
		require.Equal(t, 3, w.server.Stats(topic).Accepted)
	})
}

func TestObserverSeesBrokerOrderAndProperties(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		var seen []servicebus.Accepted
		w.server.Observe(func(a servicebus.Accepted) { seen = append(seen, a) })
		m := message("a", "1")
		m.ApplicationProperties = map[string]any{"epoch": int64(3), "position": "82"}
		w.send(topic, m, message("b", "2"))
		virtualtime.Wait()
		require.Len(t, seen, 2)
		require.Equal(t, servicebus.Accepted{
			Entity: topic, MessageID: "1", SessionID: "a", EnqueuedAt: seen[0].EnqueuedAt, Properties: m.ApplicationProperties,
			Size: len(seen[0].Encoded), Encoded: seen[0].Encoded,
		}, seen[0])
		require.Greater(t, seen[0].Size, seen[1].Size, "it has properties")
		require.Equal(t, "2", seen[1].MessageID)
		w.server.Observe(nil)
		w.send(topic, message("a", "3"))
		require.Len(t, seen, 2)
	})
}

func TestManySessionsManyMessages(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		const sessions, each = 40, 25
		for i := range each {
			var ms []*azservicebus.Message
			for s := range sessions {
				ms = append(ms, message(fmt.Sprint("s", s), fmt.Sprintf("s%d-%d", s, i)))
			}
			w.send(topic, ms...)
		}
		for s := range sessions {
			r := w.acceptNext()
			require.Equal(t, fmt.Sprint("s", s), r.SessionID())
			got := w.receive(r, each)
			var want []string
			for i := range each {
				want = append(want, fmt.Sprintf("s%d-%d", s, i))
			}
			require.Equal(t, want, ids(got))
			w.complete(r, got...)
			w.close(r)
		}
		require.Zero(t, w.server.Stats(subPath).Sessions)
	})
}
