package projector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1: many sessions with large events: the projector never holds more of them than
// MAX_IN_FLIGHT_BYTES allows, and applies all.
func TestG1ProjectorHasNoMoreInHandThanItHasRoomFor(t *testing.T) {
	for _, receiver := range []string{"direct", "sdk"} {
		t.Run(receiver, func(t *testing.T) {
			inVirtualTime(t, func(w *world.World) {
				const aggregates, each, size, room = 8, 25, 100_000, 8 << 20
				for n := 1; n <= each; n++ {
					for a := range aggregates {
						c := event(fmt.Sprintf("a%d", a), n, "T")
						body, err := bson.Marshal(bson.D{{Key: "fullDocument", Value: append(fields(c.Document()), bson.E{Key: "pad", Value: strings.Repeat("x", size)})}})
						require.NoError(w, err)
						c.Body = body
						publish(w, c)
					}
				}
				p := w.StartProjector(func(c *projector.Config, _ *projector.Options) {
					c.MaxInFlightBytes, c.MaxSessions, c.SessionReceiver = room, aggregates, receiver
				})
				most := 0
				for w.Bus.Stats(world.SubscriptionPath).Completed < aggregates*each {
					w.DelayMongo(aggregates, 100*time.Millisecond, "update")
					w.Pass(50 * time.Millisecond)
					most = max(most, w.Bus.Stats(world.SubscriptionPath).Locked)
				}
				_, err := p.End()
				require.NoError(w, err)
				require.LessOrEqual(w, most*size, room)
				require.LessOrEqual(w, w.Bus.Stats(world.SubscriptionPath).MostInHand, int64(room/aggregates), "one batch is completed, one applied, and one arrives")
				require.Greater(w, most, aggregates, "one by one would be slow")
				for a := range aggregates {
					require.Equal(w, int64(each), w.TimelineOf(fmt.Sprintf("a%d", a)).Events)
				}
			})
		})
	}
}

func fields(document bson.Raw) (d bson.D) {
	if err := bson.Unmarshal(document, &d); err != nil {
		panic(err)
	}
	return d
}
