package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/ledger"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// versions is the second version of the projection, and what a reader of the view sees.
type versions struct {
	projectors []*slot
	// dropping is set once the first version is being dropped, which ends its projectors.
	dropping atomic.Bool

	mu       sync.Mutex // guards what follows
	reads    []checker.Read
	attempts []int
	// actual and actualTotals are the first version before it was dropped.
	actual, actualTotals *history.Model
}

// revised is the code of the second version. Nothing is poison to it, and it marks its documents.
type revised struct{ projection.Timeline }

// code is the version in a document of the read model; a document of the first version has none.
const code = "code"

// Project implements [projection.Projection].
func (r revised) Project(e projection.Event) ([]projection.Write, error) {
	writes, err := r.Timeline.Project(e)
	for n, w := range writes {
		u := w.(projection.UpdateOne)
		u.Ops = append(u.Ops, projection.Set(code, 2))
		writes[n] = u
	}
	return writes, err
}

// revisedLedger is the same of the ledger. It does without the position in its timelines, which
// documents do not hold.
type revisedLedger struct{}

// Name implements [projection.Projection].
func (revisedLedger) Name() string { return ledger.Name }

// Collections implements [projection.Stored].
func (revisedLedger) Collections() []projection.Collection {
	return []projection.Collection{{Name: ledger.Name, KeyedBy: projection.ByAggregate}, {Name: ledger.TotalsName}}
}

// Project implements [projection.Projection].
func (revisedLedger) Project(e projection.Event) ([]projection.Write, error) {
	writes, err := revised{}.Project(e)
	for n, w := range writes {
		u := w.(projection.UpdateOne)
		u.Collection = ledger.Name
		kind, _ := e.Document().Lookup("type").StringValueOK()
		writes[n] = u
		writes = append(writes, projection.Update(ledger.TotalsName, kind, projection.Inc("events", 1)))
	}
	return writes, err
}

// asVersion has the settings of a version of the projection, and what its commands need of the
// source.
func (w *world) asVersion(version int) func(*projector.Config, *projector.Options) {
	knows := w.knowsSource(plan.Collections[0])
	return func(c *projector.Config, o *projector.Options) {
		knows(c, o)
		all, err := projection.NewRegistry(revised{}, revisedLedger{})
		require.NoError(w, err)
		o.Projections = all
		w.programOf(revisedProgram).runs(c, o)
		if version > 1 {
			c.Projection, c.Subscription = fmt.Sprintf("%s:%d", c.Projection, version), w.secondSubscription()
		}
	}
}

func (w *world) secondSubscription() string { return w.plan.Settings.Projection + "-v2" }

func (w *world) secondPath() string { return topic + "/Subscriptions/" + w.secondSubscription() }

// newVersion has an operator follow the procedure for a new version, from the views of the first
// one to the switch, beside the writers, the services and whatever happens to them.
func (w *world) newVersion(step plan.Step) {
	w.work.Go(func() {
		ctx, name := w.Context(), w.plan.Settings.Projection
		random := rand.New(rand.NewPCG(step.Random, 0xd9))
		succeeds := func(code int) bool { return code == commandline.ExitOK }
		if !w.until(succeeds, w.asVersion(1), "switch", name, "--to", "1", "--force") {
			return
		}
		reading, stopReading := context.WithCancel(ctx)
		var reader sync.WaitGroup
		reader.Go(func() { w.readView(reading) })
		defer reader.Wait()
		defer stopReading()
		w.index(ctx, plan.Collections[0], "aggregateId", "version")
		require.NoError(w, w.bus.AddSubscription(topic, servicebus.Subscription{Name: w.secondSubscription(), Outbound: servicebus.Outbound{
			RequiresSession: true, LockDuration: w.plan.Settings.LockDuration.Duration, MaxDeliveryCount: 10,
		}}))
		s := w.newProjectorBy("second", w.asVersion(2))
		w.versions.projectors = append(w.versions.projectors, s)
		if step.Early {
			s.start()
			pause(ctx, time.Duration(random.Int64N(int64(5*time.Second)))) // events come, and wait
		}
		build := []string{"build", "--chunk", fmt.Sprint(step.Total), "--parallel", fmt.Sprint(step.Before)}
		w.slow("find", 40, step.Delay.Duration)
		for _, after := range step.KilledDrops {
			w.killedBy(after.Duration, w.asVersion(2), build...)
			w.tooEarly()
		}
		if !w.until(succeeds, w.asVersion(2), build...) {
			return
		}
		s.fill()
		for range step.Times {
			pause(ctx, time.Duration(random.Int64N(int64(3*time.Second))))
			s.kill(random.IntN(2) == 0)
			pause(ctx, time.Duration(random.Int64N(int64(3*time.Second))))
			s.start()
		}
		change := []string{"switch", name, "--to", "2"}
		if len(step.KilledDrops) > 0 {
			w.attempts()
			w.killedBy(step.KilledDrops[0].Duration, w.asVersion(2), change...)
		}
		w.attempts()
		if w.until(func(code int) bool {
			if succeeds(code) {
				return true
			}
			w.attempts()
			return false
		}, w.asVersion(2), change...) {
			w.met.add("versions built and switched to", 1)
			pause(ctx, 2*time.Second) // the reader sees what is applied beside it
		}
	})
}

// until repeats a command until ok accepts its exit code, and reports whether it does in time. If a
// projector keeps the session that the command needs, because of an event that cannot be applied,
// the operator stops the projectors meanwhile, as the command proposes.
func (w *world) until(ok func(code int) bool, change func(*projector.Config, *projector.Options), args ...string) bool {
	var start func()
	defer func() {
		if start != nil {
			start()
		}
	}()
	for end := time.Now().Add(settled); ; pause(w.Context(), 5*time.Second) {
		code, out := w.operate(change, args...)
		switch {
		case ok(code):
			return true
		case time.Now().Before(end):
		case start == nil && strings.Contains(out, "stop the projectors"):
			start, end = w.stopProjectors(), time.Now().Add(settled)
		default:
			w.record.End(strings.Join(args, " "), fmt.Errorf("exit code %d: %s", code, out))
			return false
		}
	}
}

// stopProjectors stops every projector, and returns what starts them again. Not the driver's
// goroutine.
func (w *world) stopProjectors() (start func()) {
	stopped := make(chan []*instance)
	w.driver <- func() {
		w.trace.add("the operator stops the projectors")
		var all []*instance
		for _, s := range w.projector {
			if i := s.end(); i != nil {
				all = append(all, i)
			}
		}
		stopped <- all
	}
	for _, i := range <-stopped {
		<-i.done
	}
	return func() {
		w.driver <- func() {
			for _, s := range w.projector {
				s.fill()
			}
		}
	}
}

// tooEarly has the operator try to switch to a version whose build was killed.
func (w *world) tooEarly() {
	var state struct {
		State string `bson:"state"`
	}
	w.commit(w.Context(), func() error {
		err := w.client.Database(readModel).Collection(w.plan.Settings.Projection+"_v2_build").FindOne(w.Context(), bson.D{{Key: "_id", Value: "state"}}).Decode(&state)
		if errors.Is(err, driver.ErrNoDocuments) {
			return nil
		}
		return err
	})
	if state.State == "built" {
		return
	}
	args := []string{"switch", w.plan.Settings.Projection, "--to", "2", "--force"}
	if code, out := w.operate(w.asVersion(2), args...); code == commandline.ExitOK {
		w.broken.add(checker.ErrView)
		w.Errorf("%v: it was switched to a version whose build is in state %q:\n%s", checker.ErrView, state.State, out)
	}
}

// attempts records that an attempt to switch begins.
func (w *world) attempts() {
	w.versions.mu.Lock()
	defer w.versions.mu.Unlock()
	w.versions.attempts = append(w.versions.attempts, len(w.versions.reads))
}

// readView reads the whole view again and again until ctx ends, as a reader of the application
// does.
func (w *world) readView(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		read, err := w.readViewOnce(ctx)
		if err != nil {
			continue // a fault of MongoDB
		}
		w.versions.mu.Lock()
		w.versions.reads = append(w.versions.reads, read)
		w.versions.mu.Unlock()
	}
}

func (w *world) readViewOnce(ctx context.Context) (checker.Read, error) {
	read := checker.Read{Events: map[string]int64{}}
	cursor, err := w.client.Database(readModel).Collection(w.plan.Settings.Projection+"_current").Find(ctx, bson.D{})
	if err != nil {
		return read, err
	}
	var documents []struct {
		ID     string `bson:"_id"`
		Events int64  `bson:"events"`
		Code   int    `bson:"code"`
	}
	if err := cursor.All(ctx, &documents); err != nil {
		return read, err
	}
	for _, d := range documents {
		if version := max(d.Code, 1); !slices.Contains(read.Versions, version) {
			read.Versions = append(read.Versions, version)
		}
		read.Events[d.ID] = d.Events
	}
	return read, nil
}

// settleVersions waits until the second version has every event, and then has the operator drop the
// first one, whose projectors still run.
func (w *world) settleVersions() {
	if w.met.count("versions built and switched to") == 0 {
		return
	}
	second := w.client.Database(readModel).Collection(w.plan.Settings.Projection + "_v2")
	rests := w.eventually(settled, func() bool {
		m, err := witness.ReadTimeline(w.Context(), second)
		committed, _ := w.record.Seen()
		return err == nil && m.Events() >= committed && w.bus.Stats(w.secondPath()).Active == 0
	})
	if !rests {
		w.record.Note(func(run *checker.Run) {
			run.Unrest = fmt.Sprintf("the second version lacks events; the broker counts %+v", w.bus.Stats(w.secondPath()))
		})
	}
	var err error
	w.versions.actual, w.versions.actualTotals, err = w.readModels("")
	require.NoError(w, err)
	if rests {
		w.dropFirst()
	}
	v := &checker.Versions{Reads: w.versions.reads, Attempts: w.versions.attempts}
	v.Actual, v.ActualTotals, err = w.readModels("_v2")
	require.NoError(w, err)
	v.Expected, v.ExpectedTotals = w.record.FoldAll(occurred)
	if v.ActualTotals == nil {
		v.ExpectedTotals = nil
	}
	w.record.Note(func(run *checker.Run) { run.Versions = v })
}

// readModels reads the timelines of a version, and the totals if it has any.
func (w *world) readModels(suffix string) (timelines, totals *history.Model, err error) {
	database := w.client.Database(readModel)
	timelines, err = witness.ReadTimeline(w.Context(), database.Collection(w.plan.Settings.Projection+suffix))
	if err == nil && w.plan.Settings.Projection == plan.Ledger {
		totals, err = ledger.ReadTotals(w.Context(), database, suffix)
	}
	return timelines, totals, err
}

// dropFirst deletes the subscription of the first version and drops its collections. Its projectors
// end when they notice, and nothing creates a collection again.
func (w *world) dropFirst() {
	w.versions.dropping.Store(true)
	require.NoError(w, w.bus.RemoveSubscription(topic, subscription))
	drop := []string{"drop", w.plan.Settings.Projection, "--version", "1", "--yes"}
	for _, after := range w.plan.KilledReplays {
		w.killedBy(after.Duration, w.asVersion(1), drop...)
	}
	if !w.until(func(code int) bool { return code == commandline.ExitOK }, w.asVersion(1), drop...) {
		return
	}
	w.met.add("versions dropped", 1)
	pause(w.Context(), 30*time.Second)
	names, err := w.client.Database(readModel).ListCollectionNames(w.Context(), bson.D{{Key: "name", Value: bson.D{
		{Key: "$in", Value: bson.A{w.plan.Settings.Projection, w.plan.Settings.Projection + "_positions", w.plan.Settings.Projection + "_processes", w.plan.Settings.Projection + "_parked"}},
	}}})
	require.NoError(w, err)
	if len(names) > 0 {
		w.broken.add(checker.ErrStuck)
		w.Errorf("%v: %v of the dropped version was created again", checker.ErrStuck, names)
	}
}
