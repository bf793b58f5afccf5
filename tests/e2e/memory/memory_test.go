package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	emulator "github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// After every random write the documents in memory equal those of the server, and both refuse the
// same writes. MONGODB_URI names the server; without it, the embedded one is used.
func TestMemoryWritesAsTheServerDoes(t *testing.T) {
	database := emptyDatabase(t, mongoClient(t))
	outcomes := map[string]int{}
	const seeds, writes = 60, 60
	for seed := range uint64(seeds) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		collection := database.Collection(fmt.Sprint("seed", seed))
		var store memory.Store
		for i := range writes {
			w := g.write(collection.Name())
			what := fmt.Sprintf("seed %d, write %d: %+v", seed, i, w)
			err := store.Apply(w)
			refused := send(t.Context(), collection, w)
			switch {
			case errors.Is(err, memory.ErrUnsupported):
				// It is unknown what the server did: this document has left the comparison.
				outcomes["unsupported"]++
				_, id := w.Target()
				_, deleteErr := collection.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: id}})
				require.NoError(t, deleteErr)
				require.NoError(t, store.Apply(projection.Delete(collection.Name(), id)))
				continue
			case err != nil:
				outcomes["refused"]++
				require.ErrorIs(t, err, memory.ErrRefused, what)
				require.Error(t, refused, "%s\nin memory: %v", what, err)
			default:
				outcomes["written"]++
				require.NoError(t, refused, what)
			}
			requireSame(t, &store, collection, what)
		}
	}
	t.Logf("%v", outcomes)
	require.Greater(t, outcomes["written"], seeds*writes/2)
	require.Greater(t, outcomes["refused"], seeds*writes/20)
	require.Less(t, outcomes["unsupported"], seeds*writes/20)
}

func mongoClient(t *testing.T, adjust ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		_, uri = emulator.Start(t, emulator.Options{})
	}
	o := options.Client().ApplyURI(uri)
	for _, f := range adjust {
		f(o)
	}
	client, err := mongo.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	return client
}

// emptyDatabase returns an empty database, which is dropped at the end.
func emptyDatabase(t *testing.T, client *mongo.Client) *mongo.Database {
	t.Helper()
	database := client.Database(fmt.Sprintf("sluice_memory_%d", os.Getpid()))
	require.NoError(t, database.Drop(t.Context()))
	t.Cleanup(func() { _ = database.Drop(context.WithoutCancel(t.Context())) })
	return database
}

// send executes a write with the driver.
func send(ctx context.Context, c *mongo.Collection, w projection.Write) error {
	_, id := w.Target()
	filter := bson.D{{Key: "_id", Value: id}}
	var err error
	switch w := w.(type) {
	case projection.UpdateOne:
		byKind := map[projection.OpKind]bson.D{}
		var update bson.D
		for _, op := range w.Ops {
			byKind[op.Kind] = append(byKind[op.Kind], bson.E{Key: op.Field, Value: op.Value})
		}
		for kind, fields := range byKind {
			update = append(update, bson.E{Key: string(kind), Value: fields})
		}
		_, err = c.UpdateOne(ctx, filter, update, options.UpdateOne().SetUpsert(w.Upsert))
	case projection.ReplaceOne:
		_, err = c.ReplaceOne(ctx, filter, w.Document, options.Replace().SetUpsert(true))
	case projection.DeleteOne:
		_, err = c.DeleteOne(ctx, append(filter, projection.Filter(w.If)...))
	}
	return err
}

func requireSame(t *testing.T, store *memory.Store, c *mongo.Collection, what string) {
	t.Helper()
	cursor, err := c.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var all []bson.D
	require.NoError(t, cursor.All(t.Context(), &all))
	require.Len(t, all, store.Len(), what)
	for _, got := range all {
		want, ok := store.Get(c.Name(), got[0].Value)
		require.True(t, ok, what)
		require.Empty(t, memory.Diff(want, got), "%s\nin memory: %v\non the server: %v", what, want, got)
	}
}

// generator draws writes that interact: few documents, few fields, paths into and around each
// other.
type generator struct{ *rand.Rand }

func one[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

func (g generator) write(collection string) projection.Write {
	id := one[any](g, 1, int64(1), "a", "b", bson.D{{Key: "x", Value: 1}})
	switch g.IntN(12) {
	case 0:
		if g.IntN(2) == 0 {
			return projection.DeleteIf(collection, id, g.condition(one(g, "a", "n", "n.x", "list", "m", "d")))
		}
		return projection.Delete(collection, id)
	case 1, 2:
		document := bson.D{}
		if g.IntN(2) == 0 {
			document = append(document, bson.E{Key: "_id", Value: id})
		}
		for _, key := range []string{"a", "b", "list"}[:g.IntN(4)] {
			document = append(document, bson.E{Key: key, Value: g.value(2)})
		}
		raw, err := bson.Marshal(document)
		if err != nil {
			panic(err)
		}
		return projection.Replace(collection, id, raw)
	}
	var ops []projection.Op
	for range 1 + g.IntN(4) {
		ops = append(ops, g.op())
	}
	if g.IntN(4) == 0 {
		return projection.UpdateExisting(collection, id, ops...)
	}
	return projection.Update(collection, id, ops...)
}

func (g generator) op() projection.Op {
	field := one(g, "a", "b", "n", "n.x", "a.x", "a.x.y", "list", "list.0", "list.2.x", "t.%2E", "d", "m")
	if g.IntN(60) == 0 {
		field = one(g, "", "a..b", "$a", "a.$x", "_id")
	}
	switch g.IntN(15) {
	case 9, 10:
		return projection.AddToSet(one(g, field, "list"), g.value(1), g.value(2))
	case 11:
		return projection.Pull(one(g, field, "list"), g.value(0), g.value(2))
	case 12:
		return projection.PullWhere(one(g, field, "list"), g.condition(one(g, "", "x", "y")))
	case 13:
		return projection.Mul(one(g, field, "n", "t.k"), g.number())
	case 14:
		return projection.Add(one(g, field, "n", "t.k"), g.number())
	case 0:
		return projection.SetOnInsert(field, g.value(2))
	case 1:
		return projection.Unset(field)
	case 2, 3:
		return projection.Inc(one(g, field, "n", "t.k"), one(g, 1, -1, int64(1)<<40, math.MaxInt64))
	case 4:
		return projection.Min(one(g, field, "m"), g.value(0))
	case 5:
		return projection.Max(one(g, field, "m"), g.value(0))
	case 6:
		return projection.Truncate(one(g, field, "list"), g.Int64N(3))
	}
	return projection.Set(field, g.value(2))
}

func (g generator) condition(field string) projection.Condition {
	value := one[any](g, 1, 1.5, decimal("1.5"), decimal("-0.0"), "a", true, bson.DateTime(1), bson.ObjectID{1})
	return one(g, projection.Missing, func(f string) projection.Condition { return projection.Eq(f, value) },
		func(f string) projection.Condition { return projection.Lt(f, value) }, func(f string) projection.Condition { return projection.Lte(f, value) },
		func(f string) projection.Condition { return projection.Gt(f, value) }, func(f string) projection.Condition { return projection.Gte(f, value) },
	)(field)
}

func (g generator) number() any {
	return one[any](g, 0, 1, -2, int32(3), int64(1)<<40, 0.1, -1.5, math.Copysign(0, -1), decimal("0.00"), decimal("1.10"), decimal("-3E+3"),
		decimal("1E-40"), decimal("9999999999999999999999999999999999"))
}

// decimal returns the value of a constant of the test.
func decimal(text string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

func (g generator) value(depth int) any {
	if depth > 0 {
		switch g.IntN(4) {
		case 0:
			return bson.D{{Key: one(g, "x", "y"), Value: g.value(depth - 1)}}
		case 1:
			list := bson.A{}
			for range g.IntN(4) {
				list = append(list, g.value(depth-1))
			}
			return list
		}
	}
	return one[any](g, 1, int64(1), int64(math.MaxInt64), 1.5, math.NaN(), math.Inf(-1), math.Copysign(0, -1), decimal("1.50"), decimal("-2"), bson.Binary{Data: []byte{1}}, "a", "b", "", nil, true, false,
		bson.DateTime(g.Int64N(3)), bson.ObjectID{byte(g.IntN(3))}, bson.Timestamp{T: 1 + uint32(g.IntN(2)), I: uint32(g.IntN(2))}) // the server fills in an empty one
}
