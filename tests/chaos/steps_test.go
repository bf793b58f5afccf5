package chaos

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// role is the role of the process that is struck.
type role int

const (
	leading    role = iota // the leader
	takingOver             // the standby that takes over after the leader is killed
	handingOn              // the leader, after it was asked to stop
	projecting             // a projector
)

// step is a point of the path at which a process is struck: a message is in flight, and is held.
type step struct {
	name string
	role role
	is   func(wire.Unit) bool
}

// steps are the steps of the path.
var steps = []step{
	{"asking for changes", leading, request(wire.Mongo, "getMore")},
	{"reading changes", leading, func(u wire.Unit) bool { return u.Changes > 0 }},
	{"sending", leading, func(u wire.Unit) bool { return isMessage(u) && !u.Reply }},
	{"waiting for the acknowledgement", leading, reply(wire.ServiceBus, "disposition")},
	{"writing a checkpoint", leading, request(wire.Blob, "write")},
	{"checkpoint written", leading, reply(wire.Blob, "write")},
	{"renewing the lease", leading, request(wire.Blob, "renew")},
	{"lease renewed", leading, reply(wire.Blob, "renew")},

	{"breaking the lease", takingOver, request(wire.Blob, "break")},
	{"lease broken", takingOver, reply(wire.Blob, "break")},
	{"acquiring the lease", takingOver, request(wire.Blob, "acquire")},
	{"lease acquired", takingOver, reply(wire.Blob, "acquire")},
	{"writing the epoch", takingOver, request(wire.Blob, "write")},
	{"epoch written", takingOver, reply(wire.Blob, "write")},
	{"opening the change stream", takingOver, request(wire.Mongo, "aggregate")},
	{"sending for the first time", takingOver, func(u wire.Unit) bool { return isMessage(u) && !u.Reply }},

	{"releasing the lease", handingOn, request(wire.Blob, "release")},
	{"lease released", handingOn, reply(wire.Blob, "release")},

	{"accepting a session", projecting, request(wire.ServiceBus, "attach")},
	{"receiving", projecting, func(u wire.Unit) bool { return isMessage(u) && u.Reply }},
	{"applying", projecting, func(u wire.Unit) bool { return isApply(u) && !u.Reply }},
	{"applied", projecting, func(u wire.Unit) bool { return isApply(u) && u.Reply }},
	{"completing", projecting, request(wire.ServiceBus, "disposition")},
	{"completed", projecting, reply(wire.ServiceBus, "disposition")},
}

// in returns the step in a ring. With the checkpoint in MongoDB, each write of its object is an
// update, whether it is of the record or of the lease.
func (s step) in(o ringOptions) func(wire.Unit) bool {
	if !o.inMongo || s.role == projecting {
		return s.is
	}
	blobs := []string{"write", "renew", "break", "acquire", "release"}
	return func(u wire.Unit) bool {
		if u.Server == wire.Mongo && u.Name == "update" {
			return slices.ContainsFunc(blobs, func(name string) bool { return s.is(wire.Unit{Server: wire.Blob, Name: name, Reply: u.Reply}) })
		}
		return s.is(u)
	}
}

func request(s wire.Server, name string) func(wire.Unit) bool {
	return func(u wire.Unit) bool { return u.Server == s && u.Name == name && !u.Reply }
}

func reply(s wire.Server, name string) func(wire.Unit) bool {
	return func(u wire.Unit) bool { return u.Server == s && u.Name == name && u.Reply }
}

// isMessage reports whether a unit has events: those of put-token and of management are smaller.
func isMessage(u wire.Unit) bool {
	return u.Server == wire.ServiceBus && u.Name == "transfer" && u.Bytes > 600
}

// isApply reports whether a unit is a projector's write.
func isApply(u wire.Unit) bool {
	return u.Server == wire.Mongo && slices.Contains([]string{"update", "insert", "bulkWrite", "findAndModify", "commitTransaction"}, u.Name)
}

// strike is one round: the signal, and the step.
type strike struct {
	step
	signal syscall.Signal // SIGKILL or SIGSTOP
	// late means that the held message arrives once another process has taken over; otherwise it
	// never arrives.
	late bool
}

func (s strike) String() string {
	fate := "the message is lost"
	if s.late {
		fate = "the message arrives late"
	}
	return fmt.Sprintf("%s while %s, %s", unix.SignalName(s.signal), s.name, fate)
}

// strikes returns all combinations, kills and stops alternating.
func strikes() []strike {
	var all []strike
	for _, late := range []bool{true, false} {
		for _, s := range steps {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				all = append(all, strike{s, signal, late})
			}
		}
	}
	return all
}
