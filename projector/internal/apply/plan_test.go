package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var errAway = errors.New("something it needs is away")

// counting keeps one document per aggregate; the event's type selects how it misbehaves.
type counting struct{}

func (counting) Name() string       { return "counting" }
func (counting) Collection() string { return "c" }
func (counting) Project(e projection.Event) ([]projection.Write, error) {
	switch e.Type {
	case "ignored":
		return nil, nil
	case "poison":
		return nil, projection.Permanent(errors.New("no good"))
	case "panic":
		panic("oh")
	case "away":
		return nil, errAway
	case "elsewhere":
		return []projection.Write{projection.Update("other", e.Aggregate, projection.Inc("n", 1))}, nil
	case "other id":
		return []projection.Write{projection.Update("c", "x", projection.Inc("n", 1))}, nil
	case "delete":
		return []projection.Write{projection.Delete("c", e.Aggregate)}, nil
	case "guard":
		return []projection.Write{projection.Update("c", e.Aggregate, projection.Set("_sluice.position", ""))}, nil
	case "operator":
		return []projection.Write{projection.Update("c", e.Aggregate, projection.Mul("n", "x"))}, nil
	case "nil":
		return []projection.Write{nil}, nil
	}
	return []projection.Write{projection.Update("c", e.Aggregate, projection.Inc("n", 1))}, nil
}

// planner plans for counting, without a database.
var planner = &Applier{projection: counting{}, guards: guards{prefix: "_sluice.", inside: true}}

// batchOf reads "a1 a2:poison b1" as changes: aggregate, position, type.
func batchOf(text string) ([]envelope.Change, []Result) {
	var changes []envelope.Change
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, "other id", "other-id")) {
		id, kind, _ := strings.Cut(word, ":")
		changes = append(changes, envelope.Change{
			Aggregate: id[:1], Position: "82" + id[1:], Epoch: 3, Type: strings.ReplaceAll(kind, "-", " "), Operation: envelope.Insert,
		})
	}
	return changes, make([]Result, len(changes))
}

// describe returns results as text: one letter each, with the reason of a poison.
func describe(results []Result) string {
	var words []string
	for _, r := range results {
		words = append(words, []string{"pending", "applied", "duplicate", "poison", "parked", "gap"}[r.Kind]+r.Reason)
	}
	return strings.Join(words, " ")
}

// grouped returns groups as text.
func grouped(groups []*group) string {
	var words []string
	for _, g := range groups {
		var word strings.Builder
		word.WriteString(g.aggregate)
		for _, e := range g.events {
			fmt.Fprintf(&word, " %d", e.index)
		}
		words = append(words, word.String())
	}
	return strings.Join(words, ", ")
}

func TestPlan(t *testing.T) {
	for _, test := range []struct{ name, batch, groups, results string }{
		{"by aggregate, in order", "a1 b1 a2 c1 b2", "a 0 2, b 1 4, c 3", "pending pending pending pending pending"},
		{"a repeat waits until its change is committed", "a1 a1 a3 a4", "a 0 2 3", "pending pending pending pending"},
		{"what comes late waits for what came early", "a1 a3 a2 a4", "a 0 1 3", "pending pending pending pending"},
		{"positions of another aggregate do not matter", "a5 b1 a6", "a 0 2, b 1", "pending pending pending"},
		{"events without effect are kept: they move the guard", "a1:ignored a2", "a 0 1", "pending pending"},
		{"what follows a poison waits, in its aggregate", "a1 a2:poison a3 b1", "a 0, b 3", "pending poisonProjectionFailed pending pending"},
		{"a panic is poison", "a1:panic a2", "", "poisonProjectionFailed pending"},
		{"what may heal holds its aggregate up", "a1:away a2 b1", "b 2", "pending pending pending"},
		{"another collection", "a1:elsewhere", "", "poisonProjectionInvalid"},
		{"another document", "a1:other id", "", "poisonProjectionInvalid"},
		{"a deletion", "a1:delete", "", "poisonProjectionInvalid"},
		{"the guard's field", "a1:guard", "", "poisonProjectionInvalid"},
		{"an operator that cannot be", "a1:operator", "", "poisonProjectionInvalid"},
		{"no write at all", "a1:nil", "", "poisonProjectionInvalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changes, results := batchOf(test.batch)
			groups, decided, failures := planner.plan(t.Context(), Attempt{}, changes, results)
			record(results, decided)
			require.Equal(t, strings.Contains(test.batch, "away"), len(failures) == 1 && errors.Is(failures[0].Err, errAway))
			require.Equal(t, test.groups, grouped(groups))
			require.Equal(t, test.results, describe(results))
		})
	}
}

// planOf plans a batch in which no change fails, and records what is decided.
func planOf(t *testing.T, a *Applier, changes []envelope.Change, results []Result) []*group {
	t.Helper()
	groups, decided, failures := a.plan(t.Context(), Attempt{}, changes, results)
	record(results, decided)
	require.Empty(t, failures)
	return groups
}

// versionsOf gives the changes of a batch versions; 0 leaves one without.
func versionsOf(changes []envelope.Change, versions ...int64) {
	for i, v := range versions {
		changes[i].Version = v
	}
}

func TestPlanStopsWhereAVersionIsLeftOut(t *testing.T) {
	changes, results := batchOf("a1 a2 a3 a4 b1 b2")
	versionsOf(changes, 1, 0, 3, 4, 7, 8)
	groups := planOf(t, planner, changes, results)
	require.Equal(t, "a 0 1, b 4 5", grouped(groups), "versions are judged from insert to insert")

	ignoreVersions := *planner
	ignoreVersions.ignoreVersions = true
	groups = planOf(t, &ignoreVersions, changes, results)
	require.Equal(t, "a 0 1 2 3, b 4 5", grouped(groups))

	changes[2].Operation = envelope.Update
	groups = planOf(t, planner, changes, results)
	require.Equal(t, "a 0 1 2, b 4 5", grouped(groups), "an update does not count on")
}

func TestPlanHoldsBackChangesAboveAGap(t *testing.T) {
	changes, results := batchOf("a5 a6 a2 a3 a7 b1")
	results[0].Kind = Gap
	groups := planOf(t, planner, changes, results)
	require.Equal(t, "a 2 3, b 5", grouped(groups))
	require.Equal(t, "gap pending pending pending pending pending", describe(results))
}

func TestAGapIsTheFirstChangeThatLeavesVersionsOut(t *testing.T) {
	changes, results := batchOf("a1 a2 a3")
	versionsOf(changes, 0, 5, 6)
	groups := planOf(t, planner, changes, results)
	g := groups[0]
	require.False(t, g.stopAtGap(Guard{Position: "0", Version: 0}), "the first version seen is accepted")
	require.False(t, g.stopAtGap(Guard{Position: "0", Version: 4}))
	require.True(t, g.stopAtGap(Guard{Position: "0", Version: 3}))
	require.Equal(t, "a 0", grouped(groups), "what is before it can be written")
	require.Equal(t, "pending pending pending", describe(results))

	groups = planOf(t, planner, changes[1:], results[1:])
	require.True(t, groups[0].stopAtGap(Guard{Position: "0", Version: 3}))
	record(results[1:], groups[0].decided)
	require.Equal(t, "pending gapVersionGap pending", describe(results))
	require.Empty(t, groups[0].events)
}

// Two streams' changes of one aggregate are applied in the order in which they came, one stream's
// at a time: positions of two streams cannot be compared, and a write is guarded by one of them.
func TestPlanStopsWhereAnotherStreamsChangeComes(t *testing.T) {
	changes, results := batchOf("a5 a6 a1 b1 a7 a6 b2")
	changes[2].Stream, changes[5].Stream = "other", "other"
	for _, pass := range []struct{ groups, results string }{
		{"a 0 1, b 3 6", "pending pending pending pending pending pending pending"},
		{"a 2", "applied applied pending applied pending pending applied"},
		{"a 4", "applied applied applied applied pending pending applied"},
		{"a 5", "applied applied applied applied applied pending applied"},
		{"", "applied applied applied applied applied applied applied"},
	} {
		groups := planOf(t, planner, changes, results)
		require.Equal(t, pass.groups, grouped(groups))
		require.Equal(t, pass.results, describe(results))
		for _, g := range groups {
			g.committed(len(g.events), false)
			record(results, g.decided)
		}
	}
}

func TestPlanGoesOnWhereItStopped(t *testing.T) {
	changes, results := batchOf("a1 a2 a2 a3:poison a4 b1")
	results[0].Kind, results[3].Kind = Applied, Poison
	groups := planOf(t, planner, changes, results)
	require.Equal(t, "a 1, b 5", grouped(groups))
	require.Equal(t, "applied pending pending poison pending pending", describe(results))
}

func TestChunksFoldWhatCanBeFolded(t *testing.T) {
	changes, results := batchOf("a1 a2 b7:ignored")
	changes[1].Version = 9
	groups := planOf(t, planner, changes, results)
	chunks := planner.chunksOf(groups)
	require.Len(t, chunks, 2)

	a := chunks[0].model.(*mongo.UpdateOneModel)
	require.Equal(t, 2, chunks[0].events)
	unparked := bson.E{Key: "_sluice.parked", Value: bson.D{{Key: "$exists", Value: false}}}
	whole := bson.E{Key: "_sluice.empty", Value: bson.D{{Key: "$exists", Value: false}}}
	complete := bson.E{Key: "_sluice.version", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$lt", Value: int64(8)}}}}}
	require.Equal(t, bson.D{{Key: "_id", Value: "a"}, {Key: "_sluice.position", Value: bson.D{{Key: "$lt", Value: "821"}}}, unparked, whole, complete}, a.Filter)
	require.Equal(t, bson.D{
		{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(2)}}},
		{Key: "$setOnInsert", Value: bson.D{{Key: "_sluice.first", Value: int64(9)}}},
		{Key: "$set", Value: bson.D{
			{Key: "_sluice.position", Value: "822"}, {Key: "_sluice.epoch", Value: int64(3)}, {Key: "_sluice.version", Value: int64(9)},
		}},
	}, a.Update)
	require.True(t, *a.Upsert)

	b := chunks[1].model.(*mongo.UpdateOneModel)
	require.False(t, *b.Upsert, "an event without effect made a document")

	groups[0].most = 1
	require.Equal(t, 1, planner.chunksOf(groups)[0].events)
	groups[0].unguarded = true
	a = planner.chunksOf(groups)[0].model.(*mongo.UpdateOneModel)
	require.Equal(t, bson.D{{Key: "_id", Value: "a"}, {Key: "_sluice.position", Value: bson.D{{Key: "$exists", Value: false}}}, unparked, whole}, a.Filter)
}

func TestDropAppliedDropsDuplicatesAtTheFront(t *testing.T) {
	changes, results := batchOf("a1 a2 a3")
	groups := planOf(t, planner, changes, results)
	require.Equal(t, 2, groups[0].dropApplied("822", Guard{}))
	record(results, groups[0].decided)
	require.Equal(t, "a 2", grouped(groups))
	require.Equal(t, "duplicate duplicate pending", describe(results))
	require.Zero(t, groups[0].dropApplied("", Guard{}))
	groups[0].committed(1, false)
	record(results, groups[0].decided)
	require.Equal(t, "duplicate duplicate applied", describe(results))
}
