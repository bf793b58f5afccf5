package apply

import (
	"errors"
	"os"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The kinds of the collection's documents.
const (
	kindProcess = "process"
	kindInHand  = "in hand"
	kindSuspect = "suspect"
	kindCaution = "caution"
)

// process is a projector that runs, or has ended without stopping.
type process struct {
	ID       bson.ObjectID `bson:"_id"`
	Instance string        `bson:"instance"`
	Host     string        `bson:"host"`
	PID      int           `bson:"pid"`
	Seen     time.Time     `bson:"seen"` // by the server's clock
}

// ended reports whether another process has ended: it has not shown itself for long, does not run
// on this host, or had the place of this process, which begins.
func (p *process) ended(self *process, begins bool) bool {
	if self.Seen.Sub(p.Seen) > goneAfter {
		return true
	}
	if p.Host == "" || p.Host != self.Host {
		return false
	}
	if p.PID == self.PID {
		return begins && p.Instance == self.Instance
	}
	found, err := os.FindProcess(p.PID)
	if err != nil {
		return false // not known
	}
	defer func() { _ = found.Release() }()
	return errors.Is(found.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// inHandRecord is the events that a process has given to the projection, which has not returned.
type inHandRecord struct {
	ID      bson.ObjectID `bson:"_id"`
	Kind    string        `bson:"kind"`
	Process bson.ObjectID `bson:"process"`
	// Alone is set if each of the events is to blame, should the process end: only one was with the
	// projection, or the projection has kept it for long.
	Alone  bool          `bson:"alone"`
	Events []eventRecord `bson:"events"`
}

type eventRecord struct {
	MessageID string `bson:"messageId"`
	Aggregate string `bson:"aggregate"`
	Stream    string `bson:"stream"`
	Position  string `bson:"position"`
}

func eventOf(c *envelope.Change) eventRecord {
	return eventRecord{MessageID: c.MessageID, Aggregate: c.Aggregate, Stream: c.Stream, Position: c.Position}
}

// suspect is an event that was in hand when a process ended.
type suspect struct {
	MessageID string `bson:"_id"`
	Aggregate string `bson:"aggregate"`
	Stream    string `bson:"stream"`
	Position  string `bson:"position"`
	// Alone are the records, with the event alone, that ended processes have left.
	Alone []bson.ObjectID `bson:"alone"`
}

// condemned reports whether the event is not to be given to the projection again. One process may
// have ended for another reason just when the event was with the projection.
func (s *suspect) condemned() bool { return len(s.Alone) >= 2 }
