package plan

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The conditions with which Service Bus has been seen to detach a link or reject a batch, and an
// unknown one.
var conditions = []string{
	"amqp:link:detach-forced", "amqp:link:message-size-exceeded", "amqp:internal-error", "amqp:not-allowed", "amqp:decode-error",
	"amqp:resource-limit-exceeded", "com.microsoft:server-busy", "com.microsoft:timeout", "com.microsoft:operation-cancelled",
	"com.contoso:full-moon",
}

// answers draws the unusual answers to sends, of every other run: too few in a row to count as a
// refusal of the message.
func (d *drawing) answers(r *rand.Rand) {
	for _, at := range moments(r, 3*r.IntN(2), d.length) {
		s := Step{At: at, Kind: AnswerSends, Times: 1 + r.IntN(6)}
		kind, condition, passing := r.IntN(6), conditions[r.IntN(len(conditions))], []string{"amqp:internal-error", "com.microsoft:timeout", "com.contoso:full-moon"}[r.IntN(3)]
		switch kind {
		case 0:
			s.Answer = Released
		case 1:
			s.Answer = Modified
		case 2:
			s.Answer, s.Condition = Rejected, passing
		default:
			s.Answer, s.Condition = Detached, condition
		}
		d.add(s)
	}
}

// neverTaken are the ways in which Service Bus permanently refuses one message, whatever it is sent
// with.
var neverTaken = []Step{
	{Answer: Rejected, Condition: "amqp:not-allowed"},
	{Answer: Rejected, Condition: "amqp:decode-error"},
	{Answer: Rejected, Condition: "amqp:link:message-size-exceeded"},
	{Answer: Rejected, Condition: "com.contoso:full-moon"},
	{Answer: Detached, Condition: "amqp:decode-error"},
	{Answer: Detached, Condition: "amqp:link:message-size-exceeded"},
}

// neverTakenMessages lets Service Bus permanently refuse messages, whatever they are sent with and
// whichever leader sends them: each is an event of an aggregate of its own, among others. If
// versions were judged, a parked message would park its aggregate later; so they are not.
func (d *drawing) neverTakenMessages(r *rand.Rand) {
	policy, n := []string{"park", "fail"}[r.IntN(2)], 1+r.IntN(2)
	if at := moments(r, n, d.length); d.plan.Settings.Documents == "" && d.plan.Settings.GapWait.Duration == 0 {
		d.plan.Settings.OnRefused = policy
		for n, at := range at {
			s := neverTaken[r.IntN(len(neverTaken))]
			s.At, s.Kind, s.Aggregate, s.Random = at, RefuseMessage, fmt.Sprintf("refused-%d", n+1), r.Uint64()
			s.Total = 2 + r.Int64N(8)
			s.Before = r.Int64N(s.Total)
			d.add(s)
		}
	}
}

// openings makes opening a connection slow, in every third run: seconds for a token and dozens of
// round trips, when every producer is a new one, or every connection was closed. In half of these
// runs that never ends.
func (d *drawing) openings(r *rand.Rand) {
	for _, at := range moments(r, 1+r.IntN(2), d.length) {
		slow := Step{At: at, Kind: SlowOpening, Delay: between(r, time.Second, 15*time.Second), For: between(r, 5*time.Second, 40*time.Second)}
		cause := Step{At: sum(at, time.Duration(r.Int64N(int64(2*time.Second)))), Kind: CutBus}
		if r.IntN(3) > 0 {
			cause.Kind, cause.Silent, cause.For = KillProducers, r.IntN(2) == 0, between(r, 100*time.Millisecond, 3*time.Second)
		}
		if r.IntN(3) == 0 {
			slow.For = Duration{}
		}
		if d.plan.Seed%3 == 1 {
			d.add(slow, cause)
		}
	}
}

// upgrades makes MongoDB write resume tokens of another version from some moment on, and in some
// runs back again: while the services run, or while nothing is published for so long that the
// broker forgets, so that only a position identifies what the next leader sends again.
func (d *drawing) upgrades(r *rand.Rand) {
	from := 1 + r.IntN(2)
	d.plan.Settings.TokenVersion = from
	for _, at := range moments(r, r.IntN(3), d.length) {
		from = 3 - from
		if r.IntN(2) == 0 {
			d.add(Step{At: at, Kind: KillProducers, Silent: r.IntN(2) == 0, For: sum(between(r, time.Second, 3*time.Second), DuplicateWindow)})
			at = sum(at, time.Second)
		}
		d.add(Step{At: at, Kind: UpgradeMongo, Version: from})
	}
}

// StoreMongoDB keeps the checkpoint in the source's deployment, over connections of its own.
const StoreMongoDB = "mongodb"

// The faults of a checkpoint store in MongoDB, besides those of MongoDB itself.
const (
	SlowCheckpoints Kind = "slow-checkpoints" // each write of a checkpoint takes a while
	FailCheckpoints Kind = "fail-checkpoints" // writes are done, and answered with an error of the write concern
)

// store keeps the checkpoint in MongoDB in every third run whose projections have no program of
// their own, with elections, slow writes and errors of the write concern. The lease of such a store
// never expires.
func (d *drawing) store(r *rand.Rand) {
	s := &d.plan.Settings
	chosen, elections, slow, failed := r.IntN(3) == 0, r.IntN(3), r.IntN(3), r.IntN(3)
	if !chosen || s.Program {
		return
	}
	s.Store, s.Takeover = StoreMongoDB, "break"
	for _, at := range moments(r, elections, d.length) {
		d.add(Step{At: at, Kind: StepDown, For: between(r, 500*time.Millisecond, 12*time.Second)})
	}
	for _, at := range moments(r, slow, d.length) {
		d.add(Step{At: at, Kind: SlowCheckpoints, Times: 1 + r.IntN(12), For: between(r, 100*time.Millisecond, 6*time.Second)})
	}
	for _, at := range moments(r, failed, d.length) {
		d.add(Step{At: at, Kind: FailCheckpoints, Times: 1 + r.IntN(12), Code: concerns[r.IntN(len(concerns))]})
	}
}
