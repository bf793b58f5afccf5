package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

// failingTimelines is timeline, but for aggregates whose name begins with "failing".
type failingTimelines struct{ projection.Timeline }

func (failingTimelines) Name() string { return "failing" }

func (f failingTimelines) Project(e projection.Event) ([]projection.Write, error) {
	if strings.HasPrefix(e.Aggregate, "failing") {
		return nil, errors.New("a failure that may pass")
	}
	return f.Timeline.Project(e)
}

// BenchmarkNeighbours is how long an event of a healthy aggregate takes, from its send to its
// completion, while 1,000 aggregates fail and the bodies of 40 cannot be fetched, beside nothing in
// their place. A second is the bound.
func BenchmarkNeighbours(b *testing.B) {
	for _, trouble := range []struct{ failing, away int }{{0, 0}, {1000, 40}} {
		b.Run(fmt.Sprintf("failing=%d/away=%d", trouble.failing, trouble.away), func(b *testing.B) {
			l := newBacklog(b, 0, 1, 1, envelope.SessionKey{})
			bus, err := azservicebus.NewClientFromConnectionString(l.stack.Endpoint(emulator.EnvServiceBus), nil)
			require.NoError(b, err)
			defer func() { _ = bus.Close(context.WithoutCancel(b.Context())) }()
			sender, err := bus.NewSender(emulator.Topic, nil)
			require.NoError(b, err)
			send := func(aggregate string, n int, claim *envelope.Claim) {
				position := fmt.Sprintf("82%022X", n+1)
				c := envelope.Change{
					Stream: "shop.events", Token: position + aggregate, Position: position, Epoch: 1, Aggregate: aggregate, Session: aggregate,
					Operation: envelope.Insert, Type: "Measured", Claim: claim,
				}
				if claim == nil {
					c.Body = counted(b, n, 1, envelope.SessionKey{}).Body
				}
				message, err := envelope.Encode(c, envelope.BSON)
				require.NoError(b, err)
				require.NoError(b, sender.SendMessage(b.Context(), message, nil))
			}
			for n := range trouble.failing {
				send(fmt.Sprint("failing-", n), n, nil)
			}
			for n := range trouble.away {
				send(fmt.Sprint("away-", n), n, &envelope.Claim{Blob: "shop.events/x.bson", Size: 300_000, SHA256: strings.Repeat("ab", 32)})
			}
			registry, err := projection.NewRegistry(failingTimelines{})
			require.NoError(b, err)
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			config := projectorConfig(l.stack)
			config.Projection, config.MaxSessions, config.Connections, config.UndecidedAfter = "failing", 8, 1, 10*time.Minute
			done := make(chan error, 1)
			go func() {
				done <- projector.Run(ctx, config, projector.Options{Projections: registry, Instance: "bench"})
			}()
			l.completed(b, 1)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for l.stack.ServiceBus.Stats(subscriptionPath).Locked < trouble.failing+trouble.away {
				<-tick.C
			}
			var waits []time.Duration
			for n := range 100 {
				began := time.Now()
				send("healthy", n, nil)
				l.completed(b, 2+n)
				waits = append(waits, time.Since(began))
			}
			slices.Sort(waits)
			require.LessOrEqual(b, waits[len(waits)-1], time.Second)
			b.ReportMetric(float64(waits[len(waits)/2].Milliseconds()), "p50-ms")
			b.ReportMetric(float64(waits[len(waits)-1].Milliseconds()), "max-ms")
			b.ReportMetric(0, "ns/op")
			stop()
			require.NoError(b, <-done)
		})
	}
}
