package servicebus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	benchBatch    = 100
	benchBody     = 1 << 10
	benchSessions = 50
)

// benchBatchOf makes a batch of 1 KB messages over many sessions, with ids from first on.
func benchBatchOf(b *testing.B, s *azservicebus.Sender, first int) *azservicebus.MessageBatch {
	batch, err := s.NewMessageBatch(b.Context(), nil)
	require.NoError(b, err)
	body := make([]byte, benchBody)
	for i := range benchBatch {
		session := new(fmt.Sprint("s", (first+i)%benchSessions))
		require.NoError(b, batch.AddMessage(&azservicebus.Message{
			Body: body, MessageID: new(fmt.Sprintf("%064d", first+i)), SessionID: session, PartitionKey: session,
			ApplicationProperties: map[string]any{"position": fmt.Sprintf("82%062d", first+i), "epoch": int64(1), "operation": "insert"},
		}, nil))
	}
	return batch
}

// BenchmarkSend measures messages a second with four senders, each with one batch under way.
// Most of what it costs is the client's encoding.
func BenchmarkSend(b *testing.B) {
	_, c := onTCP(b, standard(), servicebus.Options{})
	const senders = 4
	var wg sync.WaitGroup
	perSender := b.N/(senders*benchBatch) + 1
	batches := make([][]*azservicebus.MessageBatch, senders)
	clients := make([]*azservicebus.Sender, senders)
	for i := range senders {
		s, err := c.NewSender(topic, nil)
		require.NoError(b, err)
		clients[i] = s
		for n := range perSender {
			batches[i] = append(batches[i], benchBatchOf(b, s, (i*perSender+n)*benchBatch))
		}
	}
	b.ResetTimer()
	for i := range senders {
		wg.Go(func() {
			for _, batch := range batches[i] {
				if err := clients[i].SendMessageBatch(b.Context(), batch, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(senders*perSender*benchBatch)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkReceive measures receive and complete with eight sessions at a time.
func BenchmarkReceive(b *testing.B) {
	s, c := onTCP(b, standard(), servicebus.Options{})
	snd, err := c.NewSender(topic, nil)
	require.NoError(b, err)
	total := (b.N/benchBatch + 1) * benchBatch
	for n := 0; n < total; n += benchBatch {
		require.NoError(b, snd.SendMessageBatch(b.Context(), benchBatchOf(b, snd, n), nil))
	}
	ids := make(chan string, benchSessions)
	for i := range benchSessions {
		ids <- fmt.Sprint("s", i)
	}
	close(ids)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for id := range ids {
				if err := drainSession(b.Context(), c, id, total/benchSessions); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "msg/s")
	require.Equal(b, total, s.Stats(subPath).Completed)
}

// drainSession receives and completes left messages of a session.
func drainSession(ctx context.Context, c *azservicebus.Client, id string, left int) error {
	r, err := c.AcceptSessionForSubscription(ctx, topic, subscription, id, nil)
	if err != nil {
		return err
	}
	for left > 0 {
		ms, err := r.ReceiveMessages(ctx, min(100, left), nil)
		if err != nil {
			return err
		}
		left -= len(ms)
		var g errgroup.Group
		for _, m := range ms {
			g.Go(func() error { return r.CompleteMessage(ctx, m, nil) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return r.Close(ctx)
}
