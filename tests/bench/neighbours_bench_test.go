package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
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
			sender := newSender(b, l.stack)
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
			config := projectorConfig(l.stack)
			config.Projection, config.MaxSessions, config.Connections, config.UndecidedAfter = "failing", 8, 1, 10*time.Minute
			stop := start(b, func(ctx context.Context) error {
				return projector.Run(ctx, config, projector.Options{Projections: registry, Instance: "bench"})
			})
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
			reportTimes(b, waits)
			require.LessOrEqual(b, slices.Max(waits), time.Second)
			b.ReportMetric(0, "ns/op")
			stop()
		})
	}
}
