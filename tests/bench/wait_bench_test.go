package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	emulator "github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// BenchmarkWait is the time from the acknowledgement of an effect to the answer of projection.Wait,
// for callers that wait for one aggregate each. To reach: 5 ms.
func BenchmarkWait(b *testing.B) {
	for _, callers := range []int{1, 100} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			database := embeddedMongo(b, emulator.Options{}).Database()
			positions := database.Collection("orders_positions")
			write := func(aggregate string, version int) {
				_, err := positions.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: aggregate}},
					bson.D{{Key: "$set", Value: bson.D{{Key: "position", Value: fmt.Sprintf("82%08d", version)}, {Key: "version", Value: version}}}},
					options.UpdateOne().SetUpsert(true))
				require.NoError(b, err)
			}
			write("a0", 1)
			var took []time.Duration
			for version := 2; b.Loop(); version++ {
				seen, written := make([]time.Time, callers), make([]time.Time, callers)
				var waiting sync.WaitGroup
				for n := range callers {
					waiting.Go(func() {
						_, err := projection.Wait(b.Context(), database, projection.Awaited{
							Projection: "orders", Aggregate: fmt.Sprint("a", n), Version: int64(version),
						})
						if seen[n] = time.Now(); err != nil {
							b.Error(err)
						}
					})
				}
				time.Sleep(time.Duration(callers)*time.Millisecond + 5*time.Millisecond) // they are to wait before the effect comes
				for n := range callers {
					write(fmt.Sprint("a", n), version)
					written[n] = time.Now()
				}
				waiting.Wait()
				for n := range callers {
					took = append(took, max(0, seen[n].Sub(written[n])))
				}
			}
			reportTimes(b, took)
		})
	}
}
