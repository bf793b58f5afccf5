package record_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/sim/internal/record"
)

// The returned run is a copy: it does not change, whatever is recorded afterwards.
func TestARunIsACopy(t *testing.T) {
	t.Parallel()
	r := record.New(checker.Run{})
	fill := func() {
		r.Commit(history.Commit{Aggregate: "a", Version: 1}, "Kind")
		r.Send(checker.Garbage{MessageID: "g", Aggregate: "a"})
		r.Accept(servicebus.Accepted{MessageID: "m"})
		r.Accept(servicebus.Accepted{MessageID: "g"})
		r.Answered(r.Write(checker.Write{Stream: "s", Leader: "l", Position: "1"}))
		r.Observe(history.Observation{Aggregate: "a", Events: 1})
		r.End("i", errors.New("it ended"))
		r.Note(func(run *checker.Run) {
			run.Sick = append(run.Sick, checker.Sick{Aggregate: "b"})
			run.Aside, run.Left = append(run.Aside, checker.Aside{}), append(run.Left, checker.Aside{})
		})
	}
	fill()
	run := r.Run()
	before := fmt.Sprintf("%+v", run)
	r.Note(func(run *checker.Run) {
		run.Committed[0].Aggregate, run.Accepted[0].MessageID, run.Writes[0].Leader, run.Sick[0].Aggregate = "x", "x", "x", "x"
		run.Observed[0].Events, run.Garbage[0].Reason, run.Ended[0].Instance, run.Aside[0].Reason, run.Left[0].Reason = 7, "x", "x", "x", "x"
	})
	fill()
	require.Equal(t, before, fmt.Sprintf("%+v", run))
	require.Len(t, r.Run().Committed, 2)
	require.Len(t, r.Run().Garbage, 1, "the broker knew the repeat")
}

func TestARecordCounts(t *testing.T) {
	t.Parallel()
	r := record.New(checker.Run{})
	require.False(t, r.Begun([]string{"s"}))
	require.Empty(t, r.Leader())
	r.Write(checker.Write{Stream: "s", Leader: "l"})
	require.False(t, r.Begun([]string{"s"}), "without a position")
	r.Write(checker.Write{Stream: "s", Leader: "m", Position: "1"})
	require.True(t, r.Begun([]string{"s"}))
	require.False(t, r.Begun([]string{"s", "other"}))
	require.Equal(t, "m", r.Leader())

	require.False(t, r.Sound("a"), "without an event")
	r.Commit(history.Commit{Aggregate: "a", Version: 1}, "Kind")
	r.Commit(history.Commit{Aggregate: "a", Version: 2}, "Kind")
	require.True(t, r.Sound("a"))
	r.Accept(servicebus.Accepted{MessageID: "m"})
	r.Accept(servicebus.Accepted{MessageID: "m"})
	r.Observe(history.Observation{Aggregate: "a", Events: 1})
	r.Observe(history.Observation{Aggregate: "a", Events: -1})
	require.Equal(t, 2, r.Accepted())
	require.EqualValues(t, 1, r.Published())
	committed, visible := r.Seen()
	require.Equal(t, []int64{2, 1}, []int64{committed, visible})
	r.Note(func(run *checker.Run) { run.Sick = append(run.Sick, checker.Sick{Aggregate: "a", Before: 1, Total: 2}) })
	require.EqualValues(t, 1, r.Hidden())
	require.False(t, r.Sound("a"))
}

func TestARecordKnowsWhatIsToBePublishedAgain(t *testing.T) {
	t.Parallel()
	r := record.New(checker.Run{})
	accept := func(id string, generation int64, position string, duplicate bool) {
		r.Accept(servicebus.Accepted{MessageID: envelope.InGeneration(id, generation), Duplicate: duplicate, Properties: map[string]any{
			"cloudEvents_id": id, envelope.PropPosition: position, envelope.PropSource: "s",
		}})
	}
	for position, id := range []string{"a", "b", "c"} {
		accept(id, 0, fmt.Sprint(position), false)
	}
	require.Zero(t, r.NotAgain())
	r.Write(checker.Write{Stream: "s", Position: "0", Accepted: 3, Generation: 1})
	require.Equal(t, 2, r.NotAgain(), "b and c lie behind the place")
	accept("b", 0, "1", true)
	require.Equal(t, 2, r.NotAgain(), "the broker knew it")
	accept("b", 1, "1", false)
	accept("c", 1, "2", false)
	require.Zero(t, r.NotAgain())
}
