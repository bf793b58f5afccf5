package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// minority is the state of a primary that the majority has left.
type minority struct {
	since bson.Timestamp // the last moment that a majority has
	over  chan struct{}  // closed when the state ends
}

// Isolate makes the server a stale primary: the majority of its set is unreachable, has elected
// another primary, and has none of the writes from now on. The server does not know it. Until
// rejoin is called,
//
//   - a write, a commit or a linearizable read happens, and is not answered if it needs the
//     majority: by the default of the write concern from 5.0 on, or if it is asked for. It fails
//     with a write concern error when wtimeout or maxTimeMS is over.
//   - a read with read concern majority or snapshot is of the moment of the call, and any other one
//     sees the writes.
//
// rejoin closes every connection: what was written meanwhile is rolled back, which the caller shows
// by serving the data of another server, such as one that had [Server.Save]'s before.
func (s *Server) Isolate() (rejoin func()) {
	m := &minority{since: s.eng.Now(), over: make(chan struct{})}
	s.mu.Lock()
	s.minority = m
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.minority = nil
		s.mu.Unlock()
		close(m.over)
		s.DropConnections()
	}
}

// isolated returns the state of a stale primary; nil: a majority is reachable.
func (s *Server) isolated() *minority {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minority
}

// awaitMajority waits until a majority has what a request did, which never happens on a stale
// primary.
func (r *request) awaitMajority(ctx context.Context) error {
	m := r.srv.isolated()
	if m == nil || !r.needsMajority() {
		return nil
	}
	d, _ := r.get("writeConcern").(bson.D)
	timeout, _ := value.AsInt(field(d, "wtimeout"))
	var late <-chan time.Time
	if timeout > 0 {
		late = time.After(time.Duration(timeout) * time.Millisecond)
	}
	code, message := int32(mongoerr.WriteConcernTimeout), "waiting for replication timed out"
	select {
	case <-m.over:
		return errCloseConnection
	case <-late:
	case <-ctx.Done():
		failed := mongoerr.From(context.Cause(ctx))
		switch {
		case failed.Code != mongoerr.MaxTimeMSExpired:
			return errCloseConnection
		case !r.writes():
			return failed
		}
		code, message = failed.Code, failed.Msg
	}
	r.unmet = bson.D{{Key: "code", Value: code}, {Key: "codeName", Value: mongoerr.Name(code)}, {Key: "errmsg", Value: message}}
	return nil
}

// needsMajority reports whether a request is answered only when a majority has what it did.
func (r *request) needsMajority() bool {
	if concern, _ := r.get("readConcern").(bson.D); field(concern, "level") == "linearizable" {
		return true
	}
	if !r.writes() || r.multi && r.name != "commitTransaction" {
		return false
	}
	d, _ := r.get("writeConcern").(bson.D)
	w, given := value.Get(d, "w")
	if !given {
		return !r.srv.opts.before(5, 0)
	}
	return w == "majority"
}
