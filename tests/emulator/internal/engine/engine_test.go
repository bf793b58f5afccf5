package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

var ns = NS{"db", "c"}

func byID(t *testing.T, id int) Selection {
	t.Helper()
	f := bson.D{{Key: "_id", Value: int32(id)}}
	m, err := query.Compile(f, &query.Env{})
	require.NoError(t, err)
	return Selection{Filter: f, Matcher: m}
}

func set(t *testing.T, field string, v any) *query.Update {
	t.Helper()
	u, err := query.CompileUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: v}}}}, &query.Env{})
	require.NoError(t, err)
	return u
}

// consistent recomputes what the indexes, the list and the counters must contain from every
// retained version.
func consistent(t *testing.T, e *Engine) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.colls {
		live, listed := 0, 0
		taken := map[string]*record{}
		want := map[*Index]map[string]map[*record]int{}
		for _, ix := range c.indexes {
			want[ix] = map[string]map[*record]int{}
		}
		note := func(r *record, v *version) {
			for _, ix := range c.indexes {
				keys, err := ix.keys(v.raw)
				require.NoError(t, err)
				for _, k := range keys {
					if want[ix][k] == nil {
						want[ix][k] = map[*record]int{}
					}
					want[ix][k][r]++
				}
			}
		}
		for r := c.first; r != nil; r = r.next {
			listed++
			require.Same(t, r, c.byID[r.key])
			require.Equal(t, r.owner != nil, r.pending != nil)
			if r.head != nil && r.head.raw != nil {
				live++
			}
			for _, ix := range c.indexes {
				if ix.Unique && r.head != nil {
					keys, err := ix.keys(r.head.raw)
					require.NoError(t, err)
					for _, k := range keys {
						require.Nil(t, taken[ix.Name+k], "two committed documents with one unique key")
						taken[ix.Name+k] = r
					}
				}
			}
			for v := r.head; v != nil; v = v.prev {
				note(r, v)
			}
			if r.pending != nil {
				note(r, r.pending)
			}
		}
		require.Equal(t, listed, len(c.byID))
		inOrder, last := 0, ""
		for _, chunk := range c.ordered.chunks {
			require.NotEmpty(t, chunk)
			for _, r := range chunk {
				require.Less(t, last, r.key)
				require.Same(t, r, c.byID[r.key])
				inOrder, last = inOrder+1, r.key
			}
		}
		require.Equal(t, listed, inOrder)
		require.Equal(t, live, c.live)
		for _, ix := range c.indexes {
			require.Equal(t, want[ix], ix.entries, ix.Name)
		}
	}
}

// Random writes, with and without transactions, keep every structure consistent,
// the unique index unique, and the oplog a history that replays to the same state.
func TestRandomHistoryStaysConsistent(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		e := New(Options{HistoryBytes: int(seed) * 200})
		ctx := t.Context()
		for name, unique := range map[string]bool{"u": true, "k": false} {
			ix, err := NewIndex(name+"_1", bson.D{{Key: name, Value: int32(1)}}, unique, true, nil, bson.D{})
			require.NoError(t, err)
			_, _, _, err = e.CreateIndex(ctx, ns, nil, ix)
			require.NoError(t, err)
		}
		open := make([]*Txn, 3)
		for range 400 {
			slot := r.IntN(len(open) + 2)
			var txn *Txn
			if slot < len(open) {
				if open[slot] == nil || !e.Open(open[slot]) {
					open[slot] = e.Begin(value.Encode(bson.D{{Key: "id", Value: int32(slot)}}), 1, time.Hour)
				}
				txn = open[slot]
			}
			step(t, e, r, txn)
			if txn != nil && r.IntN(4) == 0 {
				if r.IntN(3) == 0 {
					e.Abort(txn)
				} else {
					_ = e.Commit(txn) // one that conflicts is aborted
				}
			}
			consistent(t, e)
		}
		e.AbortAll()
		consistent(t, e)
		require.Equal(t, replay(t, e), state(t, e), "seed %d", seed)
	}
}

// A step-down aborts transactions whose statements are in progress: those must not write anything
// afterwards.
func TestAnAbortedTransactionWritesNothing(t *testing.T) {
	e := New(Options{})
	txn := e.Begin(value.Encode(bson.D{{Key: "id", Value: int32(1)}}), 1, time.Hour)
	e.AbortAll()

	doc := value.Encode(bson.D{{Key: "_id", Value: int32(1)}})
	_, err := e.Insert(t.Context(), ns, txn, []bson.Raw{doc}, true, func(int, error) {})
	require.True(t, mongoerr.Is(err, mongoerr.NoSuchTransaction), "%v", err)
	require.Error(t, e.Create(t.Context(), NS{DB: ns.DB, Coll: "other"}, txn, nil))
	consistent(t, e)

	next := e.Begin(value.Encode(bson.D{{Key: "id", Value: int32(2)}}), 1, time.Hour)
	n, err := e.Insert(t.Context(), ns, next, []bson.Raw{doc}, true, func(_ int, failed error) { require.NoError(t, failed) })
	require.NoError(t, err, "the document is not locked")
	require.Equal(t, 1, n)
	require.NoError(t, e.Commit(next))
}

func step(t *testing.T, e *Engine, r *rand.Rand, txn *Txn) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a write outside a transaction that meets one gives up instead of waiting
	id := r.IntN(8)
	var err error
	switch r.IntN(4) {
	case 0:
		doc := bson.D{{Key: "_id", Value: int32(id)}, {Key: "u", Value: int32(r.IntN(6))}, {Key: "k", Value: bson.A{int32(r.IntN(3)), "x"}}}
		_, err = e.Insert(ctx, ns, txn, []bson.Raw{value.Encode(doc)}, true, func(_ int, failed error) { err = failed })
	case 1:
		_, err = e.Update(ctx, ns, txn, UpdateSpec{Selection: byID(t, id), Update: set(t, "u", int32(r.IntN(6)))})
	case 2:
		_, err = e.Update(ctx, ns, txn, UpdateSpec{Selection: byID(t, id), Update: set(t, "k", int32(r.IntN(3))), Upsert: true})
	case 3:
		_, err = e.Delete(ctx, ns, txn, byID(t, id), false)
	}
	if err == nil {
		return
	}
	require.True(t, mongoerr.Is(err, mongoerr.DuplicateKey) || mongoerr.Is(err, mongoerr.WriteConflict) || (txn == nil && errors.Is(err, context.Canceled)), "%v", err)
	if txn != nil {
		e.Abort(txn)
	}
}

func state(t *testing.T, e *Engine) map[string]string {
	t.Helper()
	out := map[string]string{}
	unique := map[any]bool{}
	m, err := query.Compile(bson.D{}, &query.Env{})
	require.NoError(t, err)
	require.NoError(t, e.Find(ns, View{}, Selection{Matcher: m}, func(raw bson.Raw, _ bson.D, _ bool) bool {
		out[raw.Lookup("_id").String()] = raw.String()
		if u, err := raw.LookupErr("u"); err == nil {
			require.False(t, unique[u.Int32()], "two documents with u = %v", u)
			unique[u.Int32()] = true
		}
		return true
	}))
	return out
}

func replay(t *testing.T, e *Engine) map[string]string {
	t.Helper()
	out := map[string]string{}
	last := &Entry{}
	for _, x := range e.oplog.entries {
		order := value.CompareTimestamps(last.At, x.At)
		require.True(t, order < 0 || (order == 0 && x.TxnOp == last.TxnOp+1), "%v.%d after %v.%d", x.At, x.TxnOp, last.At, last.TxnOp)
		last = x
		switch x.Kind {
		case Insert:
			require.NotContains(t, out, x.ID.String())
			out[x.ID.String()] = x.Full.String()
		case Update, Replace:
			require.Contains(t, out, x.ID.String())
			out[x.ID.String()] = x.Full.String()
		case Delete:
			require.Contains(t, out, x.ID.String())
			delete(out, x.ID.String())
		default:
		}
	}
	return out
}

func TestOldVersionsAreDropped(t *testing.T) {
	e := New(Options{HistoryBytes: 1000})
	ctx := t.Context()
	_, err := e.Insert(ctx, ns, nil, []bson.Raw{value.Encode(bson.D{{Key: "_id", Value: int32(1)}})}, true, func(int, error) {})
	require.NoError(t, err)
	start := e.Now()
	txn := e.Begin(nil, 1, time.Hour)
	versions := func() int {
		n := 0
		for v := e.colls[ns].first.head; v != nil; v = v.prev {
			n++
		}
		return n
	}
	for i := range 500 {
		_, err := e.Update(ctx, ns, nil, UpdateSpec{Selection: byID(t, 1), Update: set(t, "n", int32(i))})
		require.NoError(t, err)
	}
	require.Equal(t, 501, versions(), "an open transaction may still read them")
	require.Equal(t, value.Encode(bson.D{{Key: "_id", Value: int32(1)}}), e.Get(ns, View{Txn: txn}, int32(1)))
	require.NoError(t, e.Commit(txn))
	require.Less(t, versions(), 60)
	require.True(t, mongoerr.Is(e.SnapshotAt(start), mongoerr.SnapshotTooOld))
	_, err = e.Delete(ctx, ns, nil, byID(t, 1), false)
	require.NoError(t, err)
	require.NoError(t, e.SnapshotAt(e.Now()))
}

func TestTransactionsExpire(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) { // its time does not pass while the insert is at work
		e := New(Options{})
		txn := e.Begin(nil, 1, time.Millisecond)
		_, err := e.Insert(t.Context(), ns, txn, []bson.Raw{value.Encode(bson.D{{Key: "_id", Value: int32(1)}})}, true, func(int, error) {})
		require.NoError(t, err)
		<-txn.done
		require.Error(t, e.Commit(txn))
		require.Nil(t, e.Get(ns, View{}, int32(1)))
	})
}
