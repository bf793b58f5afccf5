package projector_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1: many sessions with large events: the projector never holds more of them than
// MAX_IN_FLIGHT_BYTES allows, and applies all.
func TestG1ProjectorHasNoMoreInHandThanItHasRoomFor(t *testing.T) {
	eachReceiver(t, func(w *world.World, receiver string) {
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
		p.MustEnd()
		require.LessOrEqual(w, most*size, room)
		require.LessOrEqual(w, w.Bus.Stats(world.SubscriptionPath).MostInHand, int64(room/aggregates), "one batch is completed, one applied, and one arrives")
		require.Greater(w, most, aggregates, "one by one would be slow")
		for a := range aggregates {
			require.Equal(w, int64(each), w.TimelineOf(fmt.Sprintf("a%d", a)).Events)
		}
	})
}

func fields(document bson.Raw) (d bson.D) {
	if err := bson.Unmarshal(document, &d); err != nil {
		panic(err)
	}
	return d
}

// G1, G5: the answers that a projector keeps of a projection's program are within
// MAX_IN_FLIGHT_BYTES: it asks again for the others, for as many as fit. An event whose answer is
// larger alone is applied too.
func TestG1G5AProgramsAnswersAreKeptWithinMaxInFlightBytes(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const aggregates, each, size, room = 4, 20, 200_000, 8 << 20
		const fit = room / 8 / size // a quarter is for answers, and each of two sessions has half
		var sizes []int
		p := verbose(size)
		g := w.StartProgram(p)
		defer g.End()
		next := w.Serves(p)
		g.Replace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if events, _ := asked(r); len(events) > 0 {
				sizes = append(sizes, len(events)) // one session asks
			}
			next.ServeHTTP(w, r)
		}))
		changes := append([]envelope.Change{event("large", 1, "Large")}, rounds(aggregates, 1, each)...)
		publishTogether(w, changes...)
		running := w.StartProjector(func(c *projector.Config, o *projector.Options) {
			g.Runs(p.Name())(c, o)
			c.MaxInFlightBytes, c.MaxSessions = room, 2
		})
		w.Completed(len(changes))
		running.MustEnd()
		require.LessOrEqual(w, slices.Max(sizes), 2*fit, "events of one call: %d", sizes)
		require.Less(w, len(sizes), len(changes)/2, "one by one would be slow")
		require.Equal(w, aggregates, strings.Count(contents(w, p), fmt.Sprintf(`"events": {"$numberLong":"%d"}`, each)))
	})
}

// verbose returns a projection that writes a large document for each event.
func verbose(size int) projection.Projection {
	return keeps("verbose", func(e projection.Event) projection.Write {
		size := size
		if e.Type == "Large" {
			size *= 10
		}
		return projection.Update("verbose", e.Aggregate, projection.Inc("events", 1), projection.Set("pad", strings.Repeat("x", size)))
	})
}
