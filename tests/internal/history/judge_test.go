package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// good returns a history that keeps every promise. It has two aggregates, one of which a second
// leader published again.
func good() history.History {
	return history.History{
		Committed: []history.Commit{commit("a", 1), commit("b", 1), commit("a", 2), commit("a", 3)},
		Accepted: []history.Acceptance{
			accept("a", 1, 10, 1), accept("b", 1, 11, 1), accept("a", 2, 12, 1),
			repeat("a", 2, 12, 2), accept("a", 3, 13, 2),
		},
		Observed: []history.Observation{observe("a", 1, 10), observe("b", 1, 11), observe("a", 3, 13)},
	}
}

func commit(aggregate string, version int64) history.Commit {
	return history.Commit{Aggregate: aggregate, Version: version, At: time.Unix(version, 0)}
}

func accept(aggregate string, version int64, position int, epoch int64) history.Acceptance {
	return history.Acceptance{
		MessageID: fmt.Sprint(aggregate, position), Aggregate: aggregate, Session: aggregate, Version: version,
		Position: fmt.Sprintf("82%04d", position), Epoch: epoch,
	}
}

func repeat(aggregate string, version int64, position int, epoch int64) history.Acceptance {
	a := accept(aggregate, version, position, epoch)
	a.Duplicate = true
	return a
}

func observe(aggregate string, events int64, position int) history.Observation {
	return history.Observation{Aggregate: aggregate, Events: events, Position: fmt.Sprintf("82%04d", position)}
}

func TestJudgeAcceptsACorrectHistory(t *testing.T) {
	t.Parallel()
	require.Empty(t, history.Judge(history.History{}))

	unwatched := good()
	unwatched.Accepted, unwatched.Observed = nil, nil
	require.Empty(t, history.Judge(unwatched), "what was not observed is not judged")
}

// faults are changes to a history, each with the promise that it breaks and a part of the report.
type faults map[string]struct {
	breakIt func(*history.History)
	promise error
	want    string
}

// judgeReports requires that a history keeps every promise, and that each fault in it is reported
// first.
func judgeReports(t *testing.T, run func() history.History, all faults) {
	t.Helper()
	require.Empty(t, history.Judge(run()))
	for name, fault := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := run()
			fault.breakIt(&h)
			violations := history.Judge(h)
			require.NotEmpty(t, violations)
			require.ErrorIs(t, violations[0], fault.promise)
			require.ErrorContains(t, violations[0], fault.want)
			require.Positive(t, history.Count(violations, fault.promise))
		})
	}
}

func TestJudgeReportsEveryBrokenPromise(t *testing.T) {
	t.Parallel()
	judgeReports(t, good, faults{
		"G1: an event never reaches the broker": {
			func(h *history.History) { h.Accepted = h.Accepted[:4] },
			history.ErrLost, "the broker took 2 of 3 events",
		},
		"G1: an event never reaches the read model": {
			func(h *history.History) { h.Observed[2] = observe("a", 2, 12) },
			history.ErrLost, "the read model holds 2 of 3 events",
		},
		"G1: a whole aggregate is missing from the read model": {
			func(h *history.History) { h.Observed = append(h.Observed[:1], h.Observed[2]) },
			history.ErrLost, "aggregate b: the read model holds 0 of 1 events",
		},
		"G2: the broker gets an aggregate's events in the wrong order": {
			func(h *history.History) {
				h.Accepted[0], h.Accepted[2] = h.Accepted[2], h.Accepted[0]
				for i := range h.Accepted {
					h.Accepted[i].Version = 0 // a stream whose messages have no version
				}
			},
			history.ErrReordered, "the broker took position 820010 after 820012",
		},
		"G2: positions rise and versions do not": {
			func(h *history.History) { h.Accepted[0].Version, h.Accepted[2].Version = 2, 1 },
			history.ErrReordered, "message 1 carried version 2 where version 1 was committed",
		},
		"G2: a message goes to another session than its aggregate's": {
			func(h *history.History) { h.Accepted[2].Session = "b" },
			history.ErrMisrouted, "aggregate a: message a12 went to session b, not a",
		},
		"G2: a repeat goes to another session than its aggregate's": {
			func(h *history.History) { h.Accepted[3].Session = "b" },
			history.ErrMisrouted, "aggregate a: message a12 went to session b, not a",
		},
		"G2: the read model's position goes back": {
			func(h *history.History) { h.Observed = append(h.Observed, observe("a", 3, 12)) },
			history.ErrReordered, "went back from position 820013 to 820012",
		},
		"G2: the read model's count goes back": {
			func(h *history.History) {
				h.Observed = append(h.Observed, observe("b", 0, 14), observe("b", 1, 15))
			},
			history.ErrReordered, "went back from 1 events to 0",
		},
		"G3: the read model counts an event twice": {
			func(h *history.History) { h.Observed[2].Events = 4 },
			history.ErrDoubled, "holds 4 events of 3",
		},
		"G3: the count grows at the same position": {
			func(h *history.History) {
				h.Observed = []history.Observation{observe("b", 1, 11), observe("a", 2, 13), observe("a", 3, 13)}
			},
			history.ErrDoubled, "from 2 events to 3 without leaving position 820013",
		},
		"G3: the read model keeps no position": {
			func(h *history.History) { h.Observed[0].Position = "" },
			history.ErrUnguarded, "went to 1 events without a position",
		},
		"a message for an aggregate that was never committed": {
			func(h *history.History) { h.Accepted = append(h.Accepted, accept("z", 1, 20, 2)) },
			history.ErrUncommitted, "is of an aggregate that was never committed",
		},
		"a message more than was committed": {
			func(h *history.History) { h.Accepted = append(h.Accepted, accept("b", 2, 20, 2)) },
			history.ErrUncommitted, "2 different messages for 1 committed events",
		},
		"a read model of an aggregate that was never committed": {
			func(h *history.History) { h.Observed = append(h.Observed, observe("z", 1, 20)) },
			history.ErrUncommitted, "an aggregate that was never committed",
		},
	})
}

func TestAnUnrecognisedRepeatAloneIsNotAViolation(t *testing.T) {
	t.Parallel()
	h := good()
	h.Accepted[3].Duplicate = false // its window was too short: the guard in the read model covers that
	require.Empty(t, history.Judge(h))
}

func TestALongAggregateIdHasAHashedSession(t *testing.T) {
	t.Parallel()
	long := fmt.Sprintf("%0200d", 7)
	h := history.History{
		Committed: []history.Commit{commit(long, 1)},
		Accepted:  []history.Acceptance{accept(long, 1, 10, 1)},
	}
	require.ErrorIs(t, history.Judge(h)[0], history.ErrMisrouted)
	h.Accepted[0].Session = sessionOf(long)
	require.Empty(t, history.Judge(h))
}

// twoStreams returns a good history of one aggregate that two streams carry events of. Each stream
// has versions and positions of its own; those of the second one are below those of the first.
func twoStreams() history.History {
	of := func(a history.Acceptance) history.Acceptance {
		a.Stream = "s"
		a.MessageID += "s"
		return a
	}
	h := history.History{
		Committed: []history.Commit{commit("a", 1), commit("a", 2), commit("a", 1), commit("a", 2)},
		Accepted:  []history.Acceptance{accept("a", 1, 10, 1), of(accept("a", 1, 1, 5)), accept("a", 2, 12, 1), of(accept("a", 2, 2, 5)), repeat("a", 1, 10, 1)},
		Observed:  []history.Observation{observe("a", 1, 10), observe("a", 2, 1), observe("a", 3, 12), observe("a", 4, 2)},
	}
	for _, n := range []int{2, 3} {
		h.Committed[n].Stream = "s"
	}
	for _, n := range []int{0, 1} {
		h.Committed[n].Stream = "home"
	}
	for _, n := range []int{0, 2, 4} {
		h.Accepted[n].Stream = "home"
	}
	for _, n := range []int{1, 3} {
		h.Observed[n].Stream = "s"
	}
	return h
}

func TestG1G2G3StreamsOfOneAggregateAreJudgedSeparately(t *testing.T) {
	t.Parallel()
	judgeReports(t, twoStreams, faults{
		"the broker lacks one's last": {
			func(h *history.History) { h.Accepted = h.Accepted[:3] }, history.ErrLost, "the broker took 1 of 2 events of s a",
		},
		"a message is of the other stream": {
			func(h *history.History) { h.Accepted[1].Stream = "home" }, history.ErrReordered, "took position 820001 after 820010",
		},
		"a message is of no stream that has the aggregate": {
			func(h *history.History) { h.Accepted[1].Stream = "t" }, history.ErrUncommitted, `never committed in "t"`,
		},
		"one's are in a wrong order": {
			func(h *history.History) { h.Accepted[1], h.Accepted[3] = h.Accepted[3], h.Accepted[1] }, history.ErrReordered, "message 1 carried version 2 where version 1 was committed",
		},
		"one's position goes back": {
			func(h *history.History) { h.Observed[3].Position = "820000" }, history.ErrReordered, "went back from position s 820001 to 820000",
		},
		"one's position is written where the other's is": {
			func(h *history.History) { h.Observed[3].Stream = "" }, history.ErrReordered, "went back from position 820012 to 820002",
		},
		"an event counts twice at one's position": {
			func(h *history.History) { h.Observed[3].Position = "820001" }, history.ErrDoubled, "from 3 events to 4 without leaving position s 820001",
		},
		"an event without a position": {
			func(h *history.History) { h.Observed[1].Position = "" }, history.ErrDoubled, "from 1 events to 2 without leaving position s",
		},
		"one's last is not in the read model": {
			func(h *history.History) { h.Observed = h.Observed[:3] }, history.ErrLost, "the read model holds 3 of 4 events",
		},
	})
}

// inOneBucket returns the good history with both aggregates in one session.
func inOneBucket() history.History {
	h := good()
	h.SessionKey = envelope.Buckets(1)
	for i := range h.Accepted {
		h.Accepted[i].Session = "bucket-0"
	}
	return h
}

func TestG2IsJudgedByAggregateInASharedSession(t *testing.T) {
	t.Parallel()
	require.Empty(t, history.Judge(inOneBucket()))

	across := inOneBucket()
	across.Accepted[0], across.Accepted[1] = across.Accepted[1], across.Accepted[0]
	require.Empty(t, history.Judge(across), "two aggregates have no order, whatever they share")

	for name, versions := range map[string]bool{"messages with versions": true, "messages without versions": false} {
		within := inOneBucket()
		within.Accepted[0], within.Accepted[2] = within.Accepted[2], within.Accepted[0]
		for i := range within.Accepted {
			if !versions {
				within.Accepted[i].Version = 0
			}
		}
		violations := history.Judge(within)
		require.NotEmpty(t, violations, name)
		for _, v := range violations {
			require.ErrorIs(t, v, history.ErrReordered, name)
			require.Equal(t, "a", v.Aggregate, name)
		}
	}

	elsewhere := inOneBucket()
	elsewhere.Accepted[1].Session = "b"
	require.ErrorIs(t, history.Judge(elsewhere)[0], history.ErrMisrouted)
}
