package sim

import (
	"cmp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// commandPacks lets leaders send packs, or forbids it, as an operator, beside everything else.
func (w *world) commandPacks(step plan.Step) {
	w.work.Go(func() {
		args := []string{"packs", step.Command, "--stream", step.Stream}
		if step.Command == plan.PacksOn {
			args = append(args, "--readers-know", "--rules-checked") // an emulator has no administration
		}
		for range 10 {
			if code, _ := w.produce(args...); code == commandline.ExitOK {
				if step.Command == plan.PacksOff {
					w.met.add("packs off", 1)
				}
				return
			}
			pause(w.Context(), 2*time.Second)
		}
		w.trace.add("packs of %s are not %s", step.Stream, step.Command)
	})
}

// carries returns a function that reports whether a message carries an event, alone or in a pack.
func carries(aggregate string, version int64) func(servicebus.Accepted) bool {
	return func(m servicebus.Accepted) bool {
		return slices.ContainsFunc(witness.Events(m), func(e servicebus.Accepted) bool {
			a := witness.Accepted(e)
			return a.Aggregate == aggregate && a.Version == version
		})
	}
}

// letter is an event that was set aside, with the number that its message had in the topic.
type letter struct {
	checker.Aside
	arrived int64
}

// asideOf reads what was set aside, before the replay: the dead letters in the order of their
// queue and, among them, the copies of events of packs, each before the first dead letter of its
// aggregate that was published later. That is the order in which a replay applies them.
func (w *world) asideOf() (aside []checker.Aside) {
	var letters []letter
	for _, m := range w.bus.PeekDeadLetters(subPath, 10_000) {
		events := witness.Letters(m)
		if len(events) > 1 {
			w.met.add("dead-lettered packs", 1)
		}
		for _, e := range events {
			letters = append(letters, letter{
				checker.Aside{MessageID: w.record.Event(e.MessageID), Session: e.SessionID, Reason: e.Reason, Description: e.Description}, e.EnqueuedSequenceNumber,
			})
		}
	}
	if copies := w.copies(); len(copies) > 0 {
		letters = w.merge(letters, copies)
	}
	for _, l := range letters {
		aside = append(aside, l.Aside)
	}
	return aside
}

// merge inserts copies into dead letters. An event counts where it was published first; of its
// repeats, and its rows of snapshots, the one that arrived first comes first.
func (w *world) merge(letters, copies []letter) []letter {
	run, published := w.record.Run(), map[string]int{}
	for n, a := range run.Accepted {
		if _, known := published[a.MessageID]; !known {
			published[a.MessageID] = n
		}
	}
	order := func(a, b letter) int {
		return cmp.Or(cmp.Compare(published[a.MessageID], published[b.MessageID]), cmp.Compare(a.arrived, b.arrived))
	}
	slices.SortStableFunc(copies, order)
	for _, c := range copies {
		at := slices.IndexFunc(letters, func(l letter) bool { return run.Names(l.Aside) == run.Names(c.Aside) && order(l, c) > 0 })
		if at < 0 {
			at = len(letters)
		}
		letters = slices.Insert(letters, at, c)
	}
	return letters
}

// copies reads the events of packs that were set aside.
func (w *world) copies() (copies []letter) {
	if w.plan.Settings.PackEvents == 0 {
		return nil
	}
	var found []struct {
		Arrived     int64  `bson:"arrived"`
		MessageID   string `bson:"messageId"`
		Session     string `bson:"session"`
		Reason      string `bson:"reason"`
		Description string `bson:"description"`
	}
	w.commit(w.Context(), func() error {
		cursor, err := w.client.Database(readModel).Collection(w.plan.Settings.Projection+"_parked").Find(w.Context(), bson.D{},
			options.Find().SetProjection(bson.D{{Key: "body", Value: 0}}))
		if err != nil {
			return err
		}
		return cursor.All(w.Context(), &found)
	})
	for _, f := range found {
		copies = append(copies, letter{
			checker.Aside{MessageID: w.record.Event(f.MessageID), Session: f.Session, Reason: f.Reason, Description: f.Description}, f.Arrived,
		})
	}
	w.met.most(copiesOfParked, len(copies))
	return copies
}
