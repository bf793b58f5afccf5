package bench

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	busBatch    = 100
	busBody     = 1 << 10
	busSessions = 50
	busInFlight = 8
)

// embeddedBus serves a queue with sessions over TCP and returns a client of it.
func embeddedBus(b *testing.B) (*servicebus.Server, *azservicebus.Client) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	s, err := servicebus.New(servicebus.Config{Queues: []servicebus.Queue{{
		Name: "lanes", Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: 5 * time.Minute},
	}}}, servicebus.Options{})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var serving errgroup.Group
	serving.Go(func() error { return s.Run(ctx, l) })
	c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(l.Addr().String()), nil)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, c.Close(ctx))
		cancel()
		require.NoError(b, serving.Wait())
	})
	return s, c
}

// busBatchOf returns a batch of n messages over sessions, numbered from first on.
func busBatchOf(b *testing.B, s *azservicebus.Sender, first, n, sessions, body int) *azservicebus.MessageBatch {
	batch, err := s.NewMessageBatch(b.Context(), nil)
	require.NoError(b, err)
	for i := first; i < first+n; i++ {
		require.NoError(b, batch.AddMessage(&azservicebus.Message{
			Body: make([]byte, body), MessageID: new(fmt.Sprint(i)), SessionID: new(fmt.Sprint("s", i%sessions)),
		}, nil))
	}
	return batch
}

// BenchmarkServiceBusSend is a raw SDK loop: 1 KB messages in batches of 100, eight sends
// outstanding on one sender. Goal: 60,000 messages/s on two cores.
func BenchmarkServiceBusSend(b *testing.B) {
	s, c := embeddedBus(b)
	sender, err := c.NewSender("lanes", nil)
	require.NoError(b, err)
	batches := make([]*azservicebus.MessageBatch, b.N/busBatch+1)
	for i := range batches {
		batches[i] = busBatchOf(b, sender, i*busBatch, busBatch, busSessions, busBody)
	}
	b.ResetTimer()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(busInFlight)
	for _, batch := range batches {
		g.Go(func() error { return sender.SendMessageBatch(ctx, batch, nil) })
	}
	require.NoError(b, g.Wait())
	b.StopTimer()
	b.ReportMetric(float64(len(batches)*busBatch)/b.Elapsed().Seconds(), "msg/s")
	require.Equal(b, len(batches)*busBatch, s.Stats("lanes").Accepted)
}

// BenchmarkServiceBusReceiveComplete receives and completes 1 KB messages of eight sessions at a
// time. Goal: 15,000 messages/s on two cores.
func BenchmarkServiceBusReceiveComplete(b *testing.B) {
	s, c := embeddedBus(b)
	sender, err := c.NewSender("lanes", nil)
	require.NoError(b, err)
	total := (b.N/busBatch + 1) * busBatch
	for n := 0; n < total; n += busBatch {
		require.NoError(b, sender.SendMessageBatch(b.Context(), busBatchOf(b, sender, n, busBatch, busSessions, busBody), nil))
	}
	b.ResetTimer()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(busInFlight)
	for i := range busSessions {
		g.Go(func() error { return drainBusSession(ctx, c, fmt.Sprint("s", i), total/busSessions) })
	}
	require.NoError(b, g.Wait())
	b.StopTimer()
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "msg/s")
	require.Equal(b, total, s.Stats("lanes").Completed)
}

func drainBusSession(ctx context.Context, c *azservicebus.Client, id string, left int) error {
	r, err := c.AcceptSessionForQueue(ctx, "lanes", id, nil)
	if err != nil {
		return err
	}
	for left > 0 {
		ms, err := r.ReceiveMessages(ctx, min(busBatch, left), nil)
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

// BenchmarkServiceBusAcceptNext accepts and closes sessions while few or many wait: the cost of one
// must not depend on their number.
func BenchmarkServiceBusAcceptNext(b *testing.B) {
	for _, waiting := range []int{100, 100_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			_, c := embeddedBus(b)
			sender, err := c.NewSender("lanes", nil)
			require.NoError(b, err)
			const batch = 500
			for n := 0; n < waiting; n += batch {
				require.NoError(b, sender.SendMessageBatch(b.Context(), busBatchOf(b, sender, n, min(batch, waiting-n), waiting, 10), nil))
			}
			for b.Loop() {
				r, err := c.AcceptNextSessionForQueue(b.Context(), "lanes", nil)
				require.NoError(b, err)
				require.NoError(b, r.Close(b.Context()))
			}
		})
	}
}
