// Package pipeline_test tests the promises of both services together, in virtual time: builds,
// snapshots and repairs, packs, large events (claim check), several streams and regions.
package pipeline_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G2: a boundary lies behind every token of its time and before every later one: tokens of changes
// of documents with ids of all types, of the operations of a transaction, and high-water marks, in
// both versions of tokens.
func TestG2ABoundaryLiesBehindEveryTokenOfItsTimeAndBeforeLaterOnes(t *testing.T) {
	for _, version := range []string{"4.4", "6.0", "8.0"} {
		t.Run(version, func(t *testing.T) {
			t.Setenv("MONGODB_VERSION", version)
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				stream, err := w.Events.Watch(w.Context(), driver.Pipeline{})
				require.NoError(w, err)
				defer func() { require.NoError(w, stream.Close(context.WithoutCancel(w.Context()))) }()
				changes := 0
				for _, id := range hostileValues() {
					document := bson.D{{Key: "_id", Value: id}}
					if _, err := w.Events.InsertOne(w.Context(), document); err != nil {
						continue // no _id has this type, or it equals an earlier one
					}
					_, err = w.Events.UpdateOne(w.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 1}}}})
					require.NoError(w, err)
					changes += 2
				}
				require.Greater(w, changes, 60)
				session, err := w.Client.StartSession()
				require.NoError(w, err)
				defer session.EndSession(w.Context())
				_, err = session.WithTransaction(w.Context(), func(ctx context.Context) (any, error) {
					for n := range 300 {
						if _, err := w.Events.InsertOne(ctx, bson.D{{Key: "_id", Value: 1000 + n}}); err != nil {
							return nil, err
						}
					}
					return w.Events.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 1100}, {Key: "$lt", Value: 1300}}}})
				})
				require.NoError(w, err)
				changes += 500

				var before bson.Timestamp // the time of the last token that was earlier than the present one
				var last bson.Timestamp
				verify := func(at bson.Timestamp) {
					token := stream.ResumeToken().Lookup("_data").StringValue()
					require.Equal(w, at, envelope.TokenTime(token))
					if at.After(last) {
						before, last = last, at
					}
					require.Less(w, token, envelope.Boundary(at, 0))
					require.Less(w, envelope.Boundary(before, math.MaxUint32), token)
				}
				for range changes {
					require.True(w, stream.Next(w.Context()), "%v", stream.Err())
					var event struct{ ClusterTime bson.Timestamp }
					require.NoError(w, stream.Decode(&event))
					verify(event.ClusterTime)
				}
				_, err = w.Client.Database("other").Collection("other").InsertOne(w.Context(), bson.D{})
				require.NoError(w, err)
				var mark bson.Timestamp
				w.Eventually("a high-water mark comes", func() bool {
					require.False(w, stream.TryNext(w.Context()))
					mark = envelope.TokenTime(stream.ResumeToken().Lookup("_data").StringValue())
					return mark.After(last)
				})
				verify(mark)
			})
		})
	}
}
