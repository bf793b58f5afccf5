package pipeline

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

func TestUnsampledSpansCostNothing(t *testing.T) {
	var b batch
	for range 100 {
		b.add(event{message: &azservicebus.ReceivedMessage{}}, envelope.Change{}, apply.Result{Kind: apply.Applied})
	}
	ctx, called := t.Context(), time.Now()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		s := follow(ctx, nil, "changes", called, &b)
		endSpan(s.applying(ctx), nil)
		b.endSpans()
		endSpan(s.settling(ctx), nil)
		b.abandonSpans()
	}))
}

func TestReceivingBeginsWithTheMessage(t *testing.T) {
	called := time.Now()
	now := called.Add(time.Second)
	for enqueued, want := range map[time.Time]time.Time{
		called.Add(-time.Minute):           called, // it waited for us
		called.Add(700 * time.Millisecond): called.Add(700 * time.Millisecond),
		called.Add(time.Minute):            now, // the broker's clock is ahead
	} {
		require.Equal(t, want, arrived(&azservicebus.ReceivedMessage{EnqueuedTime: &enqueued}, called, now))
	}
	require.Equal(t, called, arrived(&azservicebus.ReceivedMessage{}, called, now))
}
