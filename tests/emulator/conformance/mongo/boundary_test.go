package mongo_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// What a server writes of one cluster time, high-water marks included, lies below the time's
// boundary and above that of any time before it, whatever the _id is.
func TestBoundariesLieBetweenTheTokensOfTwoTimes(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	insert(t, c, "before") // the collection is there before the transaction writes to it
	cs := watch(t, c, options.ChangeStream())
	decimal, err := bson.ParseDecimal128("1e40")
	require.NoError(t, err)
	ids := []any{
		int32(1), int64(1) << 60, 3.5, decimal, "s", "", true, bson.NewObjectID(), time.UnixMilli(0),
		bson.Timestamp{T: 5, I: 6},
		bson.Binary{Subtype: bson.TypeBinaryUUID, Data: make([]byte, 16)},
		bson.D{{Key: "a", Value: bson.D{}}},
		bson.MinKey{},
		bson.MaxKey{},
	}
	insert(t, c, ids...)
	session, err := f.client.StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(ctx))
	const inTransaction = 20
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		for i := range inTransaction {
			if _, err := c.InsertOne(ctx, d("_id", 1000+i)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	require.NoError(t, err)
	for _, id := range ids {
		_, err := c.DeleteOne(ctx, d("_id", id))
		require.NoError(t, err)
	}

	type token struct {
		at   bson.Timestamp
		text string
	}
	var all []token
	for events := 0; events < 2*len(ids)+inTransaction; {
		if cs.TryNext(ctx) {
			events++
			at, i, ok := cs.Current.Lookup("clusterTime").TimestampOK()
			require.True(t, ok)
			text := envelope.TokenText(cs.Current.Lookup("_id").Document())
			require.Equal(t, bson.Timestamp{T: at, I: i}, envelope.TokenTime(text))
			all = append(all, token{bson.Timestamp{T: at, I: i}, text})
		}
		require.NoError(t, cs.Err())
		mark := envelope.TokenText(cs.ResumeToken())
		all = append(all, token{envelope.TokenTime(mark), mark})
	}
	for _, of := range all {
		first, last := envelope.Boundary(of.at, 0), envelope.Boundary(of.at, math.MaxUint32)
		for _, other := range all {
			if other.at.After(of.at) {
				require.Greater(t, other.text, last)
			} else {
				require.Less(t, other.text, first)
			}
		}
	}
}
