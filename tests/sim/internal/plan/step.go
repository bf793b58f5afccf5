package plan

// Kind is the kind of a fault.
type Kind string

// The kinds of faults. The table faults lists the fields of a [Step] that each of them requires.
const (
	Kill          Kind = "kill"                   // a process is killed, or its machine is gone, and another one starts
	Stop          Kind = "stop"                   // asked to stop, and another one starts
	HoldAndKill   Kind = "hold-and-kill"          // killed while what it sent is still in flight; it arrives late, or never
	Hang          Kind = "hang"                   // a partition without errors
	Cut           Kind = "cut"                    // a partition that refuses
	Isolate       Kind = "isolate"                // cut off from everything, without errors
	KillProducers Kind = "kill-every-producer"    // nothing is published for a while
	CutBus        Kind = "cut-service-bus"        // every connection to Service Bus is closed
	CutMongo      Kind = "cut-mongodb"            // every connection to MongoDB is closed
	KillCursors   Kind = "kill-cursors"           //
	StepDown      Kind = "step-down"              // an election
	UpgradeMongo  Kind = "upgrade-mongodb"        // or back: it writes resume tokens of another version from then on
	StorageFails  Kind = "storage-fails"          // 503
	LoseAcks      Kind = "lose-acknowledgements"  // of sends that took effect
	RefuseSends   Kind = "refuse-sends"           //
	LoseReplies   Kind = "lose-replies"           // of MongoDB, whose commands took effect
	SlowUpdates   Kind = "slow-updates"           // of MongoDB
	RefuseUpdates Kind = "refuse-updates"         // of projectors, by MongoDB, with an unlisted code
	LoseAnswers   Kind = "lose-storage-answers"   // whose requests took effect
	DelayRequests Kind = "delay-storage-requests" // abandoned by their senders, overtaken by later ones, and executed eventually
	BreakLease    Kind = "break-lease"            // by a stranger, who perhaps takes it
	KillInHand    Kind = "kill-in-hand"           // while a projector has messages in hand
	StopInHand    Kind = "stop-in-hand"           // the same
	CutBusInHand  Kind = "cut-service-bus-in-hand"
	CutInHand     Kind = "cut-in-hand"

	// Those that are aimed at a kind of bug.

	OvertakeWrite Kind = "overtake-checkpoint" // a write of the checkpoint arrives behind newer ones of the same term
	BusySends     Kind = "busy-sends"          // some sends are refused and others are not, over several heartbeats
	Drip          Kind = "drip"                // events come one by one while deliveries are slow
	LoseLocks     Kind = "lose-locks"          // just before they are settled on
	SlowSettles   Kind = "slow-settlements"    // of messages, including released ones
	AnswerSends   Kind = "answer-sends"        // with something other than acceptance or a busy broker's refusal
	Poison        Kind = "poison"              // an event that cannot be applied, among others
	Scale         Kind = "scale-projectors"    // to six, and to two, under load

	SlowOpening Kind = "slow-opening" // of connections of producers to Service Bus

	RefuseMessage Kind = "refuse-message" // of an aggregate, for good

	// Those of the source, see documents.go.

	ExpireImages      Kind = "expire-images"      // of every change until then
	ReplaceCollection Kind = "replace-collection" // of a stream, by another one that gets its name
	Rewind            Kind = "rewind"             // of a stream, by the operator: what was published is published again, under new message ids

	// Those of writes, see single.go.

	RefuseDocument    Kind = "refuse-document"    // of one aggregate, by the read model's database, for what is in it
	SmallTransactions Kind = "small-transactions" // larger ones are refused
	SlowEvents        Kind = "slow-events"        // a projection takes its time for each

	// Those of single aggregates, sessions, partitions and collections, see single.go.

	HangProjection   Kind = "hang-projection"   // on an event of one aggregate
	EndAMQPSessions  Kind = "end-amqp-sessions" // by the broker, with everything in them; the connections stay open
	FailConcerns     Kind = "fail-concerns"     // of writes that MongoDB has done
	RefuseSession    Kind = "refuse-session"    // by Service Bus, with a condition that is in no table
	RefusePartition  Kind = "refuse-partition"  // likewise, of the sessions of one partition
	RefuseCollection Kind = "refuse-collection" // by the read model's database, with a code that is in no table

	// Those of broker.go.

	TakeOut Kind = "take-out" // the broker itself dead-letters an event, and the next ones may overtake it
	Deadly  Kind = "deadly"   // an event ends every projector that has it in hand
	// LastDeadly is the same when everything has healed and is at rest, so that nothing keeps
	// projectors from parking it in time.
	LastDeadly Kind = "deadly-at-rest"
)

// The servers.
const (
	ServiceBus = "Service Bus"
	MongoDB    = "MongoDB"
	Storage    = "storage"
)

// The ways over a link.
const (
	Requests = "requests"
	Replies  = "replies"
	BothWays = "both ways"
)

// The answers to sends that are not stored.
const (
	Released = "released"
	Modified = "modified"
	Rejected = "rejected"
	Detached = "detached" // no answer: the link is detached, for all sends in flight there
)

// Step is one fault.
type Step struct {
	At   Duration `json:"at"`
	Kind Kind     `json:"kind"`
	// Of is the replica that it affects.
	Of string `json:"of,omitempty"`
	// For is how long it lasts; for a kill or a stop, until the next instance starts.
	For Duration `json:"for,omitzero"`
	// KillAfter is when the instance is killed, of [HoldAndKill].
	KillAfter Duration `json:"killAfter,omitzero"`
	// Server and Way are the place of a partition.
	Server string `json:"server,omitempty"`
	Way    string `json:"way,omitempty"`
	// Stream is the stream whose lease is broken, whose collection is replaced, or whose checkpoint
	// is rewound.
	Stream string `json:"stream,omitempty"`
	// Command is the command whose replies get lost.
	Command string `json:"command,omitempty"`
	// Version is that of MongoDB's resume tokens.
	Version int `json:"version,omitempty"`
	// Times is how many times it happens.
	Times int `json:"times,omitempty"`
	// Silent means that the peers do not notice: the machine is gone.
	Silent bool `json:"silent,omitempty"`
	// Late means that what was held arrives eventually.
	Late bool `json:"late,omitempty"`
	// Takes means that the stranger acquires the lease that it has broken, or that the program has
	// another declaration when it starts again.
	Takes bool `json:"takes,omitempty"`
	// Early waits only until the broker has accepted a message. That does not depend on what the
	// projector sends to the broker, or when.
	Early bool `json:"early,omitempty"`
	// Answer is the answer to sends, which are not stored: released, modified, rejected with
	// Condition, or [Detached] with it; of a [FailAnswers], the answer of a program.
	Answer    string `json:"answer,omitempty"`
	Condition string `json:"condition,omitempty"`
	// Manner is how the event of a [Poison] fails; empty: the projection returns an error. Of a
	// [PoisonProgram], it is what the program does.
	Manner string `json:"manner,omitempty"`
	// Collection is the one of the read model whose writes are refused.
	Collection string `json:"collection,omitempty"`
	// Code is MongoDB's.
	Code int32 `json:"code,omitempty"`
	// Chance is how likely each send, or each lock, is hit.
	Chance float64 `json:"chance,omitempty"`
	// Delay is how long a delivery, a settlement, or the opening of a connection takes.
	Delay Duration `json:"delay,omitzero"`
	// Aggregate is the aggregate whose events are committed besides the workload; Total is how
	// many.
	Aggregate string `json:"aggregate,omitempty"`
	Total     int64  `json:"total,omitempty"`
	// Before is how many of them come before the poison.
	Before int64 `json:"before,omitempty"`
	// Dropped means that the operator drops the poison; otherwise it is fixed. KilledDrops are the
	// lifetimes of the `parked drop` commands that are killed before the one that is not.
	Dropped     bool       `json:"dropped,omitempty"`
	KilledDrops []Duration `json:"killedDrops,omitempty"`
	// Random determines the rest: which of the sends are affected, how long the pauses between the
	// events are.
	Random uint64 `json:"random,omitempty"`
}
