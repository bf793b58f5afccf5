package servicebus_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus"
)

func TestThin(t *testing.T) {
	s, err := servicebus.New(servicebus.Config{Topics: []servicebus.Topic{{Name: "changes",
		Subscriptions: []servicebus.Subscription{{Name: "projector", Outbound: servicebus.Outbound{RequiresSession: true}}}}}}, servicebus.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, l) }()
	c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(l.Addr().String()), nil)
	require.NoError(t, err)
	snd, err := c.NewSender("changes", nil)
	require.NoError(t, err)
	b, err := snd.NewMessageBatch(ctx, nil)
	require.NoError(t, err)
	for i := range 10 {
		id := fmt.Sprintf("s%d", i%2)
		require.NoError(t, b.AddMessage(&azservicebus.Message{Body: []byte(fmt.Sprint(i)), SessionID: &id, PartitionKey: &id}, nil))
	}
	require.NoError(t, snd.SendMessageBatch(ctx, b, nil))
	for range 2 {
		r, err := c.AcceptNextSessionForSubscription(ctx, "changes", "projector", nil)
		require.NoError(t, err)
		ms, err := r.ReceiveMessages(ctx, 10, nil)
		require.NoError(t, err)
		for _, m := range ms {
			fmt.Println(r.SessionID(), string(m.Body), m.DeliveryCount, *m.SequenceNumber)
			require.NoError(t, r.CompleteMessage(ctx, m, nil))
		}
		require.NoError(t, r.RenewSessionLock(ctx, nil))
		require.NoError(t, r.Close(ctx))
	}
	ctx2, c2 := context.WithTimeout(ctx, time.Second)
	_, err = c.AcceptNextSessionForSubscription(ctx2, "changes", "projector", nil)
	c2()
	fmt.Println(err)
	fmt.Printf("%+v\n", s.Stats("changes/Subscriptions/projector"))
	require.NoError(t, c.Close(ctx))
	cancel()
	require.NoError(t, <-done)
}
