package build

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// effect is a projection of one document for each aggregate.
type effect func(e projection.Event) []projection.Write

func (effect) Name() string       { return "effect" }
func (effect) Collection() string { return "effect" }
func (w effect) Project(e projection.Event) ([]projection.Write, error) {
	return w(e), nil
}

// effects is a projection of any documents.
type effects func(e projection.Event) []projection.Write

func (effects) Name() string { return "effects" }
func (w effects) Project(e projection.Event) ([]projection.Write, error) {
	return w(e), nil
}

func counted(e projection.Event) []projection.Write {
	return []projection.Write{projection.Update("effect", e.Aggregate, projection.Inc("events", 1), projection.Set("last", e.Version))}
}

func growing(e projection.Event) []projection.Write {
	return []projection.Write{projection.Update("effect", e.Aggregate, projection.Set(fmt.Sprint("n", e.Version), strings.Repeat("x", 4000)))}
}

func one(e projection.Event) []projection.Write {
	return []projection.Write{projection.Update("effects", e.Version, projection.Set("text", strings.Repeat("x", 100)))}
}

func long(e projection.Event) []projection.Write {
	return []projection.Write{projection.Update("effects", e.Version, projection.Set("text", strings.Repeat("x", 10_000)))}
}

// An aggregate of many events costs no more memory than its effect, and one whose effect cannot be
// written at once fails with its size, before it takes much memory.
func TestAnAggregateOfManyEventsIsBoundedByItsEffect(t *testing.T) {
	for name, c := range map[string]struct {
		projection projection.Projection
		events     int64
		failure    string
	}{
		"counted in one document":     {projection: effect(counted), events: 200_000},
		"counted in any document":     {projection: effects(counted), events: 200_000},
		"a document that grows":       {projection: effect(growing), events: 3_500},
		"a document above 16 MiB":     {effect(growing), 10_000, "MongoDB takes at most 16 MiB"},
		"many documents":              {projection: effects(one), events: 90_000},
		"more documents than at once": {effects(one), 200_000, "its effect is 1"},
		"large documents":             {effects(long), 20_000, "and an aggregate is written in one transaction, of at most 100000 writes and 33554432 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFold(c.projection, "a")
			peak := uint64(0)
			for n := range c.events {
				change := envelope.Change{Aggregate: "a", Operation: envelope.Insert, Version: n + 1}
				if !f.follows(change) {
					break
				}
				require.NoError(t, f.add(c.projection, change, change))
				if n%(c.events/16) == 0 {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapAlloc)
				}
			}
			built, _ := f.end()
			require.Less(t, peak>>20, uint64(100), "MiB")
			if c.failure != "" {
				require.ErrorContains(t, built.Failed, c.failure)
				require.Less(t, f.events, c.events, "it is read no further")
				require.Empty(t, built.Writes)
				require.Empty(t, built.Document)
				return
			}
			require.NoError(t, built.Failed)
			require.Equal(t, c.events, built.Version)
			require.EqualValues(t, 1, built.First)
			if name == "counted in one document" {
				require.Equal(t, bson.D{{Key: "_id", Value: "a"}, {Key: "events", Value: c.events}, {Key: "last", Value: c.events}}, built.Document)
			}
			if name == "counted in any document" {
				require.Equal(t, []projection.Write{projection.Update("effect", "a", projection.Inc("events", c.events), projection.Set("last", c.events))}, built.Writes)
			}
		})
	}
}

// The order of several documents is known by their versions alone.
func TestAnAggregateWhoseOrderIsNotKnownIsNotBuilt(t *testing.T) {
	for name, c := range map[string]struct {
		versions []int64
		fails    bool
	}{
		"all have versions":      {[]int64{1, 2, 3}, false},
		"one, without a version": {[]int64{0}, false},
		"the first has none":     {[]int64{0, 1}, true},
		"the last has none":      {[]int64{1, 0}, true},
	} {
		f := newFold(effect(counted), "a")
		for _, version := range c.versions {
			change := envelope.Change{Aggregate: "a", Operation: envelope.Insert, Version: version}
			if f.follows(change) {
				require.NoError(t, f.add(effect(counted), change, change))
			}
		}
		built, _ := f.end()
		if c.fails {
			require.ErrorContains(t, built.Failed, "it has several documents, and one has no version, so their order is not known", name)
		} else {
			require.NoError(t, built.Failed, name)
		}
	}
}

// Folding an aggregate's events and applying them at once leaves the document that applying each
// write in turn leaves, or both fail.
func TestAFoldLeavesWhatEachWriteInTurnLeaves(t *testing.T) {
	fields, compared := []string{"a", "b", "a.x", "c.y", "c.z"}, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		field := func() string { return fields[r.IntN(len(fields))] }
		op := func() projection.Op {
			switch n := r.Int64N(5); r.IntN(9) {
			case 0:
				return projection.SetOnInsert(field(), n)
			case 1:
				return projection.Unset(field())
			case 2:
				return projection.Mul(field(), n)
			case 3:
				return projection.Min(field(), n)
			case 4:
				return projection.AddToSet("list", n)
			case 5:
				return projection.Set(field(), n)
			case 6:
				return projection.Max(field(), n)
			default:
				return projection.Inc(field(), n)
			}
		}
		f := newFold(effect(nil), "a")
		var in memory.Store
		var inTurn error
		for n := range 1 + r.Int64N(12) {
			var writes []projection.Write
			for range r.IntN(3) {
				w := projection.UpdateOne{Collection: "effect", ID: "a", Upsert: r.IntN(4) > 0, Ops: []projection.Op{op()}}
				if r.IntN(3) == 0 {
					if more := op(); more.Field != w.Ops[0].Field {
						w.Ops = append(w.Ops, more)
					}
				}
				writes = append(writes, w)
			}
			projects := effect(func(projection.Event) []projection.Write { return writes })
			change := envelope.Change{Aggregate: "a", Operation: envelope.Insert, Version: n + 1}
			if !f.follows(change) {
				break
			}
			require.NoError(t, f.add(projects, change, change))
			for _, w := range writes {
				if inTurn == nil {
					inTurn = in.Apply(w)
				}
			}
		}
		built, _ := f.end()
		if built.Failed != nil || inTurn != nil {
			continue // an event whose writes exclude each other cannot be one update, whether or not each can be done
		}
		want, _ := in.Get("effect", "a")
		require.Equal(t, want == nil, built.Document == nil, "seed %d", seed)
		require.Empty(t, memory.Diff(want, built.Document), "seed %d", seed)
		compared++
	}
	require.Greater(t, compared, 1000)
}
