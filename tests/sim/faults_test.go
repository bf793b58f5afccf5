package sim

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
)

// step is something that happens at a moment of the run.
type step struct {
	at   time.Duration
	nth  int // keeps steps of one moment in the order they were planned
	what func()
}

// plan is what is still to happen, the next first.
type plan struct {
	steps []step
	made  int
}

func (p *plan) Len() int { return len(p.steps) }
func (p *plan) Less(i, j int) bool {
	a, b := p.steps[i], p.steps[j]
	return a.at < b.at || (a.at == b.at && a.nth < b.nth)
}
func (p *plan) Swap(i, j int) { p.steps[i], p.steps[j] = p.steps[j], p.steps[i] }
func (p *plan) Push(x any)    { p.steps = append(p.steps, x.(step)) }
func (p *plan) Pop() any {
	last := p.steps[len(p.steps)-1]
	p.steps = p.steps[:len(p.steps)-1]
	return last
}

func (p *plan) add(at time.Duration, what func()) {
	p.made++
	heap.Push(p, step{at, p.made, what})
}

// trouble makes the faults of the seed happen, one after the other, and ends when the last is over.
func (w *world) trouble(ctx context.Context) {
	p := &plan{}
	for range w.settings.Faults {
		p.add(time.Duration(w.random.Int64N(int64(w.settings.Length))), func() { w.fault(p) }) //nolint:contextcheck // a replica has its own context: it outlives the step that starts it
	}
	for range w.settings.Aimed {
		p.add(time.Duration(w.aim.Int64N(int64(w.settings.Length))), func() { w.aimed(p) }) //nolint:contextcheck // what it starts has the test's context
	}
	for p.Len() > 0 {
		next := heap.Pop(p).(step)
		pause(ctx, next.at-time.Since(w.began))
		next.what()
	}
}

// later plans the end of a fault.
func (w *world) later(p *plan, d time.Duration, what func()) { p.add(time.Since(w.began)+d, what) }

// between is a random duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// fault makes one random fault and plans its end.
func (w *world) fault(p *plan) {
	r := w.random
	// Every choice is drawn in any case, so that the seed's later choices do not hang on what runs at this moment.
	slots := w.producers
	if r.IntN(5) < 2 {
		slots = w.projector
	}
	s := slots[r.IntN(len(slots))]
	kind, short, long, few := r.IntN(35), between(r, 0, 3*time.Second), between(r, 0, 30*time.Second), 1+r.IntN(4)
	way, which, coin := []network.Direction{network.Requests, network.Replies, network.Both}[r.IntN(3)], r.IntN(3), r.IntN(2) == 0
	isProducer := &slots[0] == &w.producers[0]
	i := s.now
	restart := func() {
		if s.now == nil {
			s.start()
		}
	}
	switch kind {
	case 0, 1: // a process is killed, or its machine is gone, and another one starts
		w.trace.add("kill %s (silent: %t), restart in %s", s.name, coin, short)
		s.kill(coin)
		w.later(p, short, restart)
	case 2: // asked to stop
		w.trace.add("stop %s, restart in %s", s.name, short)
		s.end()
		w.later(p, short, restart)
	case 3, 4, 5: // killed while what it sent is still under way; it arrives late, or never
		if i == nil || !w.mayHang(i, isProducer, short+long) {
			return
		}
		w.trace.add("hold %s of %s's bus, kill it in %s, let go in %s: %t", dir(network.Requests), i.name, short, short+long, coin)
		i.bus.Hold(network.Requests)
		w.later(p, short, func() {
			if s.now == i {
				w.trace.add("kill %s", i.name)
				s.kill(false)
			}
		})
		w.later(p, short+long, func() {
			if coin {
				i.bus.Heal()
			} else {
				i.bus.Cut()
			}
		})
		w.later(p, short+time.Second, restart)
	case 6, 7, 8, 9: // a partition that hangs
		if i == nil {
			return
		}
		w.partition(p, i, isProducer, which, way, short+long/4, true)
	case 10, 11: // a partition that refuses
		if i == nil {
			return
		}
		w.partition(p, i, isProducer, which, way, short+long/4, false)
	case 12:
		if !w.mayCut(0) {
			return
		}
		w.trace.add("cut every bus connection")
		w.bus.DropConnections()
	case 13:
		w.trace.add("cut every MongoDB connection")
		w.mongo.DropConnections()
	case 14:
		w.trace.add("kill every cursor")
		w.mongo.KillCursors()
	case 15:
		w.trace.add("MongoDB steps down for %s", short)
		w.mongo.StepDown(short)
	case 16:
		w.trace.add("storage answers 503 for %s", long)
		w.blob.Fail(503, long)
	case 17:
		w.trace.add("lose the acknowledgement of %d sends", few)
		w.bus.LoseAcknowledgements(few)
	case 18:
		if coin { // so many that lanes wait unequally long to try again
			few *= 6
		}
		w.trace.add("refuse %d sends", few)
		require.NoError(w, w.bus.RefuseSends(topic, few))
	case 19:
		command := commands[r.IntN(len(commands))]
		w.trace.add("lose the replies of %d %s", few, command)
		w.mongo.LoseReplies(command, few)
	case 20:
		w.trace.add("MongoDB takes %s for %d updates", short, few)
		w.slow("update", few, short)
	case 21:
		if i == nil {
			return
		}
		w.trace.add("lose %d answers of storage to %s", few, i.name)
		i.blob.LoseAnswers(few)
	case 22, 23:
		w.stranger(p, coin, long/2)
	case 24, 25: // given up by who sent them, overtaken by later ones, and executed in the end
		if i == nil {
			return
		}
		w.trace.add("%d requests of %s to storage take %s", few, i.name, short+long/4)
		i.blob.Delay(few)
		w.later(p, short+long/4, func() { i.blob.Heal() })
	case 26, 27, 28, 29, 30:
		w.midBatch(p, kind-26, w.projector[r.IntN(len(w.projector))], short, few, coin)
	case 31, 32: // nobody publishes for so long that the broker forgets what it has seen
		w.trace.add("kill every producer, restart in %s", duplicateWindow+short)
		for _, s := range w.producers {
			s.kill(coin)
			w.later(p, duplicateWindow+short, func() {
				if s.now == nil {
					s.start()
				}
			})
		}
	case 33, 34:
		if i == nil || !w.mayHang(i, isProducer, short+long) {
			return
		}
		w.trace.add("%s is cut off from everything, without a word, for %s", i.name, short+long)
		i.bus.Hold(network.Both)
		i.mongo.Hold(network.Both)
		i.blob.Hold(network.Both)
		w.later(p, short+long, func() {
			i.bus.Heal()
			i.mongo.Heal()
			i.blob.Heal()
		})
	}
}

// midBatch waits until a projector has messages in hand, and then makes trouble. early waits only until the broker has
// taken one, which does not depend on what the projector tells the broker, and when.
func (w *world) midBatch(p *plan, kind int, s *slot, d time.Duration, few int, early bool) {
	if early || w.settings.MongoTrip == 0 {
		w.slow("update", few, d)
	}
	before := w.record.Accepted()
	for end := time.Now().Add(4 * time.Second); ; pause(w.Context(), time.Millisecond) {
		if (early && w.record.Accepted() > before) || (!early && w.bus.Stats(subPath).Locked > 0) {
			break
		}
		if time.Now().After(end) {
			return // nobody had anything to do
		}
	}
	pause(w.Context(), d/100) // up to 30 ms: somewhere in the batch
	i := s.now
	if kind >= 3 && !w.mayCut(d) {
		kind = 0
	}
	switch kind {
	case 0, 1:
		w.trace.add("kill %s while messages are in hand (silent: %t)", s.name, kind == 1)
		s.kill(kind == 1)
	case 2:
		w.trace.add("stop %s while messages are in hand", s.name)
		s.end()
	case 3:
		w.trace.add("cut every bus connection while messages are in hand")
		w.bus.DropConnections()
	case 4:
		if i != nil {
			w.trace.add("%s and bus: cut for %s while messages are in hand", i.name, d)
			i.bus.Cut()
			w.later(p, d, i.bus.Heal)
		}
	}
	w.later(p, d, func() {
		if s.now == nil {
			s.start()
		}
	})
}

func dir(d network.Direction) string {
	return map[network.Direction]string{network.Requests: "requests", network.Replies: "replies", network.Both: "both ways"}[d]
}

// mayHang says whether an instance's way to Service Bus may hang for d: see settings.Hangs. A projector also uses one
// connection from several goroutines when it has just started and while it recovers from a cut or from a hang, which may
// have cost it its locks.
func (w *world) mayHang(i *instance, isProducer bool, d time.Duration) bool {
	now := time.Now()
	if !w.settings.Hangs || now.Sub(i.began) < time.Second || (!isProducer && (now.Before(w.cutUntil) || now.Before(i.hungUntil))) {
		return false
	}
	if end := now.Add(d + recovery); !isProducer {
		i.hungUntil = end
		if end.After(w.hangUntil) {
			w.hangUntil = end
		}
	}
	return true
}

// recovery is how long a projector may take to recover from a cut or a hang.
const recovery = 10 * time.Second

// mayCut says whether projectors' ways to Service Bus may be cut, for d.
func (w *world) mayCut(d time.Duration) bool {
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
func (w *world) partition(p *plan, i *instance, isProducer bool, which int, way network.Direction, d time.Duration, hangs bool) {
	type link interface {
		Hold(d network.Direction)
		Cut()
		Heal()
	}
	name, l := "bus", link(i.bus)
	switch {
	case which == 1:
		name, l = "MongoDB", i.mongo
	case which == 2 && isProducer:
		name, l = "storage", i.blob
	}
	if name == "bus" && !isProducer && way == network.Requests && d >= w.settings.LockDuration/2 {
		way = network.Both // else the broker tells of locks that ran out, and settlements open the link again while it hangs
	}
	switch {
	case name == "bus" && hangs && !w.mayHang(i, isProducer, d), name == "bus" && !hangs && !isProducer && !w.mayCut(d):
		return
	case hangs:
		w.trace.add("%s and %s: hold %s for %s", i.name, name, dir(way), d)
		l.Hold(way)
	default:
		w.trace.add("%s and %s: cut for %s", i.name, name, d)
		l.Cut()
	}
	w.later(p, d, func() { l.Heal() })
}

// stranger is somebody who breaks the lease, and perhaps takes it.
func (w *world) stranger(p *plan, takes bool, d time.Duration) {
	stream := w.streams()[0]
	if w.settings.Streams > 1 {
		stream = w.streams()[w.random.IntN(w.settings.Streams)]
	}
	client, err := lease.NewBlobClient(w.blobs.ServiceClient().NewContainerClient(container).NewBlobClient(stream+".json"), nil)
	require.NoError(w, err)
	w.trace.add("a stranger breaks the lease of %s (and takes it for %s: %t)", stream, d, takes)
	_, err = client.BreakLease(w.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32(0))})
	if err == nil && takes {
		_, err = client.AcquireLease(w.Context(), 60, nil)
		if err == nil {
			w.later(p, d, func() { _, _ = client.ReleaseLease(w.Context(), nil) })
		}
	}
	if err != nil {
		w.trace.add("the stranger could not: %.80v", err)
	}
}

// slow makes MongoDB wait before it executes the next n commands of a name.
func (w *world) slow(command string, n int, d time.Duration) {
	var mode any = "off"
	if n > 0 {
		mode = bson.D{{Key: "times", Value: n}}
	}
	err := w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: mode},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{command}},
			{Key: "blockConnection", Value: true},
			{Key: "blockTimeMS", Value: d.Milliseconds()},
		}},
	}).Err()
	if err != nil {
		w.trace.add("MongoDB could not be slowed down: %v", err)
	}
}

// commands are those whose replies get lost.
var commands = []string{"update", "insert", "getMore", "find", "aggregate"}

// heal ends every fault and starts whatever is missing.
func (w *world) heal() {
	w.trace.add("everything heals")
	for _, command := range append(slices.Clip(commands), "commitTransaction") {
		w.mongo.LoseReplies(command, 0)
	}
	w.slow("update", 0, 0)
	w.blob.Fail(503, 0)
	for _, end := range w.injected {
		end()
	}
	w.bus.LoseAcknowledgements(0)
	require.NoError(w, w.bus.RefuseSends(topic, 0))
	for _, slots := range [][]*slot{w.producers, w.projector} {
		for _, s := range slots {
			if s.now == nil {
				s.start()
			}
			s.now.bus.Heal()
			s.now.mongo.Heal()
			s.now.blob.Heal()
		}
	}
}
