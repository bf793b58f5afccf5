package servicebus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// Senders repeat a batch until it is acknowledged, and receivers complete what they have seen,
// while all connections are cut and acknowledgements are lost now and then. A message may come
// again; none may be missing when a later one of its session comes.
func TestNothingIsLostOrOvertakenWhileConnectionsDrop(t *testing.T) {
	const lanes, batches, perBatch = 3, 30, 10
	const total = lanes * batches * perBatch
	s, c := onTCP(t, standard(), servicebus.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(60 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n%3 == 2 {
				s.LoseAcknowledgements(1)
			} else {
				s.DropConnections()
			}
		}
	})
	for lane := range lanes {
		wg.Go(func() { sendLane(ctx, t, c, fmt.Sprint("lane", lane), batches, perBatch) })
	}
	var (
		mu      sync.Mutex
		applied = map[string]int{} // messages of a session whose effect is in
		left    = total
	)
	apply := func(m *azservicebus.ReceivedMessage) {
		mu.Lock()
		defer mu.Unlock()
		var n int
		if _, err := fmt.Sscanf(string(m.Body), "%d", &n); err != nil {
			t.Errorf("body %q: %v", m.Body, err)
		}
		switch have := applied[*m.SessionID]; {
		case n > have:
			t.Errorf("session %s: message %d came when only %d had been seen", *m.SessionID, n, have)
		case n == have:
			applied[*m.SessionID]++
			if left--; left == 0 {
				close(done)
			}
		}
	}
	for range lanes {
		wg.Go(func() {
			for left := true; left && ctx.Err() == nil; {
				receiveOnce(ctx, c, apply)
				select {
				case <-done:
					left = false
				default:
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, ctx.Err(), "%d of %d left", left, total)
	require.Equal(t, total, s.Stats(topic).Accepted)
}

func sendLane(ctx context.Context, t *testing.T, c *azservicebus.Client, session string, batches, perBatch int) {
	snd, err := c.NewSender(topic, nil)
	if err != nil {
		t.Error(err)
		return
	}
	for b := range batches {
		var ms []*azservicebus.Message
		for i := range perBatch {
			n := b*perBatch + i
			m := message(session, fmt.Sprintf("%s-%d", session, n))
			m.Body = fmt.Append(nil, n)
			ms = append(ms, m)
		}
		for sendBatchOn(ctx, snd, ms) != nil {
			if ctx.Err() != nil {
				return
			}
		}
	}
}

func sendBatchOn(ctx context.Context, snd *azservicebus.Sender, ms []*azservicebus.Message) error {
	b, err := snd.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if err := b.AddMessage(m, nil); err != nil {
			return err
		}
	}
	return snd.SendMessageBatch(ctx, b, nil)
}

// receiveOnce holds a session for one batch. Every error here is one the test provokes.
func receiveOnce(ctx context.Context, c *azservicebus.Client, apply func(*azservicebus.ReceivedMessage)) {
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	r, err := c.AcceptNextSessionForSubscription(short, topic, subscription, nil)
	if err != nil {
		return
	}
	defer func() { _ = r.Close(short) }() // the connection may just have been cut
	ms, err := r.ReceiveMessages(short, 20, nil)
	if err != nil {
		return
	}
	for _, m := range ms {
		apply(m)
		if r.CompleteMessage(short, m, nil) != nil {
			return
		}
	}
}
