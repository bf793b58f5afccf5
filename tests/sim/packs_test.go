package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// packs counts what a run did with packs.
type packs struct {
	sent, events atomic.Int64 // packs that the broker took, and their events
	letters      atomic.Int64 // packs in the dead-letter queue
	copies       atomic.Int64 // events that were set aside
	off          atomic.Int64 // commands that let no leader send packs
}

// commandPacks has the operator let leaders send packs, or let them not, beside everything else.
func (w *world) commandPacks(step plan.Step) {
	w.work.Go(func() {
		args := []string{"packs", step.Command, "--stream", step.Stream}
		if step.Command == plan.PacksOn {
			args = append(args, "--readers-know", "--rules-checked") // an emulator has no administration
		}
		for range 10 {
			if code, _ := w.produce(args...); code == commandline.ExitOK {
				if step.Command == plan.PacksOff {
					w.packs.off.Add(1)
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

// asideOf reads what was set aside, before the replay: the dead letters in the order of their
// queue and, among them, the copies of events of packs, each before the first dead letter of its
// aggregate that was published later. That is the order in which a replay applies them.
func (w *world) asideOf() (aside []checker.Aside) {
	for _, m := range w.bus.PeekDeadLetters(subPath, 10_000) {
		letters := witness.Letters(m)
		if len(letters) > 1 {
			w.packs.letters.Add(1)
		}
		for _, l := range letters {
			aside = append(aside, checker.Aside{MessageID: w.record.Event(l.MessageID), Session: l.SessionID, Reason: l.Reason, Description: l.Description})
		}
	}
	copies := w.copies()
	if len(copies) == 0 {
		return aside
	}
	run, published := w.record.Run(), map[string]int{}
	for n, a := range run.Accepted {
		if _, known := published[a.MessageID]; !known {
			published[a.MessageID] = n
		}
	}
	slices.SortStableFunc(copies, func(a, b checker.Aside) int { return cmp.Compare(published[a.MessageID], published[b.MessageID]) })
	for _, c := range copies {
		at := slices.IndexFunc(aside, func(m checker.Aside) bool {
			return run.Names(m) == run.Names(c) && published[m.MessageID] > published[c.MessageID]
		})
		if at < 0 {
			at = len(aside)
		}
		aside = slices.Insert(aside, at, c)
	}
	return aside
}

// copies reads the events of packs that were set aside.
func (w *world) copies() (copies []checker.Aside) {
	if w.plan.Settings.PackEvents == 0 {
		return nil
	}
	var found []struct {
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
		copies = append(copies, checker.Aside{MessageID: w.record.Event(f.MessageID), Session: f.Session, Reason: f.Reason, Description: f.Description})
	}
	w.packs.copies.Store(max(w.packs.copies.Load(), int64(len(copies))))
	return copies
}

// coverageOfPacks is what the seeds have met of packs.
type coverageOfPacks struct {
	sent, events, letters, copies, off int
}

func (c *coverageOfPacks) add(w *world) {
	c.sent += int(w.packs.sent.Load())
	c.events += int(w.packs.events.Load())
	c.letters += int(w.packs.letters.Load())
	c.copies += int(w.packs.copies.Load())
	c.off += int(w.packs.off.Load())
}

func (c coverageOfPacks) String() string {
	return fmt.Sprintf(" packs:%d events in packs:%d dead-lettered packs:%d copies of parked events:%d packs off:%d", c.sent, c.events, c.letters, c.copies, c.off)
}
