package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// topology counts the changes of this member's state, which topologyVersion announces to drivers
// that wait for the next one. Guarded by Server.mu.
type topology struct {
	process bson.ObjectID
	counter int64
	down    bool          // the state that counter stands for
	changed chan struct{} // closed at the next change
}

// bump notes a change; the caller holds Server.mu.
func (t *topology) bump() {
	t.counter++
	close(t.changed)
	t.changed = make(chan struct{})
}

// topologyVersion returns the current version, and a channel and a moment (zero: none)
// at which it will change. That a step-down has run out shows first here.
func (s *Server) topologyVersion() (version int64, changed <-chan struct{}, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	down := time.Now().Before(s.down)
	if s.topology.down && !down {
		s.topology.down = false
		s.topology.bump()
	}
	if down {
		at = s.down
	}
	return s.topology.counter, s.topology.changed, at
}

// awaitHello holds a hello back until this member's state differs from the one
// the client knows, or its maxAwaitTimeMS has passed.
func (s *Server) awaitHello(ctx context.Context, r *request) error {
	known, err := r.doc("topologyVersion")
	if err != nil {
		return err
	}
	counter, isLong := field(known, "counter").(int64)
	process, isID := field(known, "processId").(bson.ObjectID)
	ms, isInt := value.AsInt(r.get("maxAwaitTimeMS"))
	for _, name := range []string{"processId", "counter"} {
		if field(known, name) == nil {
			return mongoerr.New(40414, "BSON field 'topologyVersion.%s' is missing but a required field", name)
		}
	}
	switch {
	case !isLong || !isID:
		return mongoerr.New(mongoerr.TypeMismatch, "topologyVersion needs a processId and a counter")
	case !isInt:
		return mongoerr.New(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'")
	case ms < 0:
		return mongoerr.New(51024, "BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '%d'", ms)
	case counter < 0:
		return mongoerr.New(mongoerr.BadValue, "the topologyVersion's counter must not be negative")
	case process != s.topology.process:
		return nil // of an earlier life of this server: answered at once
	}
	deadline := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer deadline.Stop()
	for {
		now, changed, at := s.topologyVersion()
		if counter > now {
			return mongoerr.New(31382, "Received a topology version with counter: %d which is greater than the server topology version counter: %d", counter, now)
		}
		if counter < now {
			return nil
		}
		wait, stop := soon(at)
		select {
		case <-changed:
		case <-wait:
		case <-deadline.C:
			stop()
			return nil
		case <-ctx.Done():
			stop()
			return errCloseConnection
		}
		stop()
	}
}

// soon returns a channel that fires at a moment; never for the zero moment.
func soon(at time.Time) (<-chan time.Time, func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// exhaust returns the next request of a client that wants every further hello without asking: the
// same request, with the topology version of the last reply.
func exhaust(body, reply bson.D) (bson.Raw, bool) {
	version, ok := value.Get(reply, "topologyVersion")
	if _, asked := value.Get(body, "topologyVersion"); !ok || !asked {
		return nil, false
	}
	return value.Encode(value.Set(append(bson.D{}, body...), "topologyVersion", version)), true
}
