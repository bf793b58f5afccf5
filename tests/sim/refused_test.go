package sim

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// outcomes are the answers to sends that are not stored, except for a detached link.
var outcomes = map[string]servicebus.Outcome{
	plan.Released: servicebus.Released, plan.Modified: servicebus.Modified, plan.Rejected: servicebus.Rejected,
}

// answerOf returns the plan's answer to a send.
func answerOf(step plan.Step) servicebus.Answer {
	return servicebus.Answer{Outcome: outcomes[step.Answer], Detach: step.Answer == plan.Detached, Condition: step.Condition}
}

// refuseMessage makes Service Bus permanently refuse one message: that never ends.
func (w *world) refuseMessage(step plan.Step) {
	w.bus.AnswerSendsOf(carries(step.Aggregate, step.Before+1), answerOf(step))
	w.work.Go(func() { w.around(w.Context(), step, fine) })
}

// fine is the type of an event that nothing is wrong with.
const fine = "Fine"

// around commits the events of an aggregate, one of which has a type of its own.
func (w *world) around(ctx context.Context, step plan.Step, of string) {
	var commits []history.Commit
	for n := range step.Total {
		commits = append(commits, history.Commit{Aggregate: step.Aggregate, Version: n + 1})
	}
	w.commitAll(ctx, commits, step.Before, of, rand.New(rand.NewPCG(step.Random, 0xd5)))
}

// commitAll commits events with random pauses, of which the n-th from 0 has a type of its own.
func (w *world) commitAll(ctx context.Context, commits []history.Commit, n int64, of string, random *rand.Rand) {
	for i, c := range commits {
		kind := fine
		if int64(i) == n {
			kind = of
		}
		w.insertOf(ctx, c, kind)
		if random.IntN(2) == 0 {
			pause(ctx, time.Duration(random.Int64N(int64(2*time.Second))))
		}
	}
}

// isKeepsake reports whether a request writes the record of a parked message, which follows its
// body.
func isKeepsake(r *http.Request) bool {
	return isCheckpointWrite(r) && strings.Contains(r.URL.Path, "/"+claims+"/refused/") && strings.HasSuffix(r.URL.Path, ".json")
}

// witnessKeepsake records a message that is parked from now on.
func (w *world) witnessKeepsake(record []byte) {
	var stored struct {
		Stream    string `json:"stream"`
		MessageID string `json:"messageId"`
		Aggregate string `json:"aggregate"`
		Position  string `json:"position"`
		Version   int64  `json:"version"`
	}
	if err := json.Unmarshal(record, &stored); err != nil {
		w.Errorf("read what was written of a parked message: %v", err)
	}
	w.trace.add("version %d of %s is parked", stored.Version, stored.Aggregate)
	w.record.Park(checker.Parked{
		Stream: stored.Stream, MessageID: stored.MessageID, Aggregate: stored.Aggregate, Position: stored.Position, Version: stored.Version,
	})
}

// refusedForGood is in the error of a stream that stops because a message is permanently refused.
const refusedForGood = "permanently refused by Service Bus"

// refused finds the event of the message in the error.
var refused = regexp.MustCompile(` of aggregate "([^"]+)" at (8[0-9A-F]+)`)

// leaveOut moves the checkpoint past a message that Service Bus refuses: it is left out.
func (w *world) leaveOut(stream, why string) bool {
	found := refused.FindStringSubmatch(why)
	if found == nil {
		w.Errorf("the error does not say which event is refused: %s", why)
		return true
	}
	aggregate, position := found[1], found[2]
	if !w.forward(stream, position) {
		return false
	}
	w.give(checker.Given{Aggregate: aggregate, Version: w.record.Next(stream, aggregate).Version, Why: leftOut})
	return true
}

// leftOut is the reason for abandoning an event whose message is permanently refused.
const leftOut = "its message is refused for good"

// give records an event that is abandoned.
func (w *world) give(g checker.Given) {
	w.trace.add("version %d of %s is given up: %s", g.Version, g.Aggregate, g.Why)
	w.record.Note(func(run *checker.Run) { run.Given = append(run.Given, g) })
}
