package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// due is something that must be done at a moment of the run.
type due struct {
	at   time.Duration // since the streams began
	what func()
}

// agenda is what must still be done, in the order of time, and of one moment in the order in which
// it was added.
type agenda []due

func (a *agenda) add(at time.Duration, what func()) {
	n := slices.IndexFunc(*a, func(d due) bool { return d.at > at })
	if n < 0 {
		n = len(*a)
	}
	*a = slices.Insert(*a, n, due{at, what})
}

// trouble makes the faults of the plan happen, one after the other, and ends when the last is over
// and it is time to heal.
func (w *world) trouble(ctx context.Context) {
	a := &agenda{}
	for _, s := range w.plan.Steps {
		a.add(s.At.Duration, func() { w.fault(a, s) }) //nolint:contextcheck // what it starts has the test's context, or outlives the step that starts it
	}
	a.add(w.plan.Heals.Duration, func() {})
	for len(*a) > 0 {
		next := (*a)[0]
		*a = (*a)[1:]
		w.tendUntil(ctx, next.at)
		next.what()
	}
}

// later plans the end of a fault.
func (w *world) later(a *agenda, d time.Duration, what func()) { a.add(time.Since(w.began)+d, what) }

// slotOf returns the slot of a replica of the plan.
func (w *world) slotOf(name string) *slot {
	for _, s := range slices.Concat(w.producers, w.projector) {
		if s.name == name {
			return s
		}
	}
	return nil
}

func isProducer(s plan.Step) bool { return strings.HasPrefix(s.Of, "producer") }

// fault makes one fault and plans its end.
func (w *world) fault(a *agenda, step plan.Step) {
	w.trace.add("%s", step)
	if disturbs(step) {
		defer w.disturb(time.Now(), step)
	}
	s, d := w.slotOf(step.Of), step.For.Duration
	switch step.Kind {
	case plan.Kill:
		s.kill(step.Silent)
		w.later(a, d, s.fill)
	case plan.Stop:
		s.end()
		w.later(a, d, s.fill)
	case plan.KillProducers:
		for _, s := range w.producers {
			s.kill(step.Silent)
			w.later(a, d, s.fill)
		}
	case plan.CutBus:
		if w.mayCut(0) {
			w.bus.DropConnections()
		}
	case plan.CutMongo:
		w.mongo.DropConnections()
	case plan.KillCursors:
		w.mongo.KillCursors()
	case plan.UpgradeMongo:
		w.mongo.SetTokenVersion(step.Version)
	case plan.SlowOpening:
		w.opening.Store(int64(step.Delay.Duration))
		if d > 0 {
			w.later(a, d, func() { w.opening.Store(0) })
		}
	case plan.ReplaceCollection:
		w.replaceCollection(step)
	case plan.LoseHistory:
		w.loseHistory(a, step)
	case plan.CommandSnapshot:
		w.commandSnapshot(step)
	case plan.CommandPacks:
		w.commandPacks(step)
	case plan.ExpireImages:
		w.mongo.ExpireImages()
	case plan.StepDown:
		w.mongo.StepDown(d)
		w.later(a, d, func() {})
	case plan.StorageFails:
		if w.plan.Settings.Store != "" {
			w.cutStores(a, d)
		}
		w.blob.Fail(503, d)
		w.later(a, d, func() {}) // it ends on its own, as an election does
	case plan.SlowCheckpoints:
		w.failPoint("update", step.Times, ofCheckpoints, bson.E{Key: "blockConnection", Value: true}, bson.E{Key: "blockTimeMS", Value: step.For.Milliseconds()})
	case plan.FailCheckpoints:
		w.failPoint("update", step.Times, ofCheckpoints, concern(step.Code))
	case plan.LoseAcks:
		w.bus.LoseAcknowledgements(step.Times)
	case plan.RefuseSends:
		require.NoError(w, w.bus.RefuseSends(topic, step.Times))
	case plan.LoseReplies:
		w.mongo.LoseReplies(step.Command, step.Times)
	case plan.SlowUpdates:
		w.slow("update", step.Times, d)
	case plan.RefuseUpdates:
		w.failPoint("update", step.Times, bson.E{Key: "errorCode", Value: 16732}, ofProjectors)
	case plan.BreakLease:
		w.stranger(a, step)
	case plan.KillInHand, plan.StopInHand, plan.CutBusInHand, plan.CutInHand:
		w.inHand(a, s, step)
	case plan.HoldAndKill, plan.Hang, plan.Cut, plan.Isolate, plan.LoseAnswers, plan.DelayRequests:
		if i := s.now; i != nil {
			w.faultOf(a, s, i, step)
		} else {
			w.trace.add("%s does not run", s.name)
		}
	case plan.OvertakeWrite, plan.BusySends, plan.Drip, plan.LoseLocks, plan.SlowSettles, plan.Poison, plan.Scale,
		plan.AnswerSends, plan.RefuseMessage, plan.Rewind:
		w.aimed(a, step)
	case plan.RefuseDocument, plan.SmallTransactions, plan.SlowEvents:
		w.refuse(a, step)
	case plan.HangProjection, plan.EndAMQPSessions, plan.FailConcerns, plan.RefuseSession, plan.RefusePartition, plan.RefuseCollection:
		w.single(a, step)
	case plan.LastDeadly: // it waits, see settleUsedUp
	case plan.Repair:
		w.repair(step)
	case plan.NewVersion:
		w.newVersion(step)
	case plan.TakeOut, plan.Deadly:
		w.usedUp(step)
	case plan.FailAnswers, plan.KillProgram, plan.PoisonProgram:
		w.programFault(a, step)
	default:
		w.Errorf("no code handles %s", step.Kind)
	}
}

// faultOf makes a fault of one instance.
func (w *world) faultOf(a *agenda, s *slot, i *instance, step plan.Step) {
	d := step.For.Duration
	switch step.Kind {
	case plan.HoldAndKill:
		if !w.mayHang(i, isProducer(step), d) {
			return
		}
		i.bus.Hold(network.Requests)
		w.later(a, step.KillAfter.Duration, func() {
			if s.now == i {
				w.trace.add("kill %s", i.name)
				s.kill(false)
			}
		})
		w.later(a, d, func() {
			if step.Late {
				i.bus.Heal()
			} else {
				i.bus.Cut()
			}
		})
		w.later(a, step.KillAfter.Duration+time.Second, s.fill)
	case plan.Hang, plan.Cut:
		w.partition(a, i, step)
	case plan.Isolate:
		if !w.mayHang(i, isProducer(step), d) {
			return
		}
		for _, l := range i.links() {
			l.Hold(network.Both)
		}
		w.later(a, d, i.heal)
	case plan.LoseAnswers:
		i.blob.LoseAnswers(step.Times)
	case plan.DelayRequests:
		i.blob.Delay(step.Times)
		w.later(a, d, func() { i.blob.Heal() })
	default:
		w.Errorf("no code handles %s", step.Kind)
	}
}

// inHand waits until a projector has messages in hand, and then makes a fault. An early one waits
// only until the broker has accepted one, which does not depend on what the projector sends to the
// broker, and when.
func (w *world) inHand(a *agenda, s *slot, step plan.Step) {
	d := step.For.Duration
	if step.Early || w.plan.Settings.MongoTrip.Duration == 0 {
		w.slow("update", step.Times, d)
	}
	before := w.record.Accepted()
	for end := time.Now().Add(4 * time.Second); ; pause(w.Context(), time.Millisecond) {
		if (step.Early && w.record.Accepted() > before) || (!step.Early && w.bus.Stats(subPath).Locked > 0) {
			break
		}
		if time.Now().After(end) {
			w.trace.add("no service had anything to do")
			return
		}
	}
	pause(w.Context(), d/100) // up to 30 ms: somewhere in the batch
	kind := step.Kind
	if (kind == plan.CutBusInHand || kind == plan.CutInHand) && !w.mayCut(d) {
		kind = plan.KillInHand
	}
	w.trace.add("%s %s now", kind, s.name)
	switch i := s.now; {
	case kind == plan.KillInHand:
		s.kill(step.Silent)
	case kind == plan.StopInHand:
		s.end()
	case kind == plan.CutBusInHand:
		w.bus.DropConnections()
	case i != nil:
		i.bus.Cut()
		w.later(a, d, i.bus.Heal)
	}
	w.later(a, d, s.fill)
}

// mayHang reports whether an instance's connection to Service Bus may hang for d: always, except
// for a projector whose sessions the SDK accepts. That one uses a connection from several
// goroutines when it has just started, and while it recovers from a cut or from a hang, which may
// have cost it its locks; they would wait for each other in the SDK's mutexes.
func (w *world) mayHang(i *instance, isProducer bool, d time.Duration) bool {
	if isProducer || w.plan.Settings.Receiver != plan.SDK {
		return true
	}
	now := time.Now()
	if now.Sub(i.began) < time.Second || now.Before(w.cutUntil) || now.Before(i.hungUntil) {
		return false
	}
	end := now.Add(d + recovery)
	i.hungUntil = end
	if end.After(w.hangUntil) {
		w.hangUntil = end
	}
	return true
}

// recovery is how long a projector may take to recover from a cut or a hang.
const recovery = 10 * time.Second

// mayCut reports whether projectors' connections to Service Bus may be cut, for d: always, unless
// the SDK accepts their sessions.
func (w *world) mayCut(d time.Duration) bool {
	if w.plan.Settings.Receiver != plan.SDK {
		return true
	}
	now := time.Now()
	if now.Before(w.hangUntil) {
		return false
	}
	if end := now.Add(d + recovery); end.After(w.cutUntil) {
		w.cutUntil = end
	}
	return true
}

// partition separates an instance from one server.
func (w *world) partition(a *agenda, i *instance, step plan.Step) {
	d, hangs, isBus := step.For.Duration, step.Kind == plan.Hang, step.Server == plan.ServiceBus
	l := map[string]link{plan.ServiceBus: i.bus, plan.MongoDB: i.mongo, plan.Storage: i.blob}[step.Server]
	if step.Server == plan.Storage && w.plan.Settings.Store != "" {
		l = i.store
	}
	switch {
	case isBus && hangs && !w.mayHang(i, isProducer(step), d), isBus && !hangs && !isProducer(step) && !w.mayCut(d):
		return
	case hangs:
		l.Hold(map[string]network.Direction{plan.Requests: network.Requests, plan.Replies: network.Replies, plan.BothWays: network.Both}[step.Way])
	default:
		l.Cut()
	}
	w.later(a, d, l.Heal)
}

// stranger breaks the lease, and perhaps acquires it.
func (w *world) stranger(a *agenda, step plan.Step) {
	if w.plan.Settings.Store != "" {
		w.strangerInStore(a, step)
		return
	}
	client, err := lease.NewBlobClient(w.blobs.ServiceClient().NewContainerClient(container).NewBlobClient(step.Stream+".json"), nil)
	require.NoError(w, err)
	_, err = client.BreakLease(w.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32(0))})
	if err == nil && step.Takes {
		_, err = client.AcquireLease(w.Context(), 60, nil)
		if err == nil {
			w.later(a, step.For.Duration, func() { _, _ = client.ReleaseLease(w.Context(), nil) })
		}
	}
	if err != nil {
		w.trace.add("the stranger could not: %.80v", err)
	}
}

// slow makes MongoDB wait before it executes the next n commands of a name.
func (w *world) slow(command string, n int, d time.Duration) {
	w.failPoint(command, n, bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: d.Milliseconds()}}...)
}

// concern returns the part of a fail point with which MongoDB carries out a command, and reports an
// error of the write concern with the answer.
func concern(code int32) bson.E {
	return bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: "waiting for replication"}}}
}

// The names under which clients connect to MongoDB.
var (
	ofProjectors  = bson.E{Key: "appName", Value: "sluice-projector"}
	ofCheckpoints = bson.E{Key: "appName", Value: "sluice-checkpoint"}
)

// failPoint makes something else happen at the next n commands of a name; with 0, no longer.
func (w *world) failPoint(command string, n int, what ...bson.E) {
	var mode any = "off"
	if n > 0 {
		mode = bson.D{{Key: "times", Value: n}}
	}
	err := w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: mode},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: bson.A{command}}}, what...)},
	}).Err()
	if err != nil {
		w.trace.add("MongoDB could not be made to fail at %s: %v", command, err)
	}
}

// heal ends every fault and starts whatever is missing.
func (w *world) heal() {
	w.trace.add("everything heals")
	for _, command := range append(slices.Clip(plan.Commands), "commitTransaction") {
		w.mongo.LoseReplies(command, 0)
	}
	w.slow("update", 0, 0)
	w.blob.Fail(503, 0)
	for _, end := range w.injected {
		end()
	}
	w.bus.LoseAcknowledgements(0)
	require.NoError(w, w.bus.RefuseSends(topic, 0))
	for _, s := range slices.Concat(w.producers, w.projector) {
		s.fill()
		s.now.heal()
	}
}
