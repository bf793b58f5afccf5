package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// stream is a change stream's place in the oplog. It belongs to its cursor.
type stream struct {
	eng      *engine.Engine
	scope    engine.NS // Coll "": a database; both "": the cluster
	full     string    // fullDocument
	before   string    // fullDocumentBeforeChange
	expanded bool
	stages   []query.Stage
	early    *query.Matcher // what the first stage asks of more than images; nil: nothing
	split    bool           // $changeStreamSplitLargeEvent
	opaque   bool           // as Azure DocumentDB: see documentdb.go
	version  int            // of its tokens; 0 is 2
	newest   int            // of the tokens that it resumes from
	lenient  bool           // accepts tokens that are lost
	missed   string         // such a token, not met yet; else ""
	before5  bool           // events have the form of servers before 5.0
	before6  bool
	mongos   *Mongos   // merges it; else nil
	failed   error     // what the shards answer to the first getMore; nil: no error
	ripe     time.Time // when the entry that is held back may be delivered; zero: none is
	byName   bool      // the document of an update is looked up in the collection that has the name now

	at      uint64         // position of the next entry
	from    bson.Timestamp // entries before this are skipped
	pending *engine.Entry  // its invalidate event is next
	ended   bool           // the invalidate was delivered

	fragments []fragment // of the event before at: what is left to deliver
	token     string     // of the last batch: never goes back
	tokenDoc  bson.Raw
	buf       [256]*engine.Entry
	scratch   []byte
}

const (
	defaultAwait = time.Second
	// A change event may be a little larger than a document.
	maxEvent = value.MaxDocument + 16<<10
)

// advance moves the batch's resume token forward; it never goes back.
func (s *stream) advance(t keystring.Token) {
	data, _ := t.Encode()
	if data > s.token {
		s.token, s.tokenDoc = data, t.Doc()
	}
}

// fill reads at most size events that are there now.
func (s *stream) fill(size int) ([]bson.Raw, error) {
	var out []bson.Raw
	if s.failed != nil && size > 0 {
		return nil, s.failed
	}
	bytes := 0
	s.ripe = time.Time{}
	for len(out) < size && !s.ended {
		if len(s.fragments) > 0 {
			next := s.fragments[0]
			if bytes += len(next.raw) + 12; bytes > maxBatchBytes && len(out) > 0 {
				return out, nil
			}
			out = append(out, next.raw)
			s.fragments = s.fragments[1:]
			s.advance(next.token)
			continue
		}
		if s.pending != nil {
			x := s.pending
			t := s.tokenFor(x)
			t.Invalidate = true
			raw, keep, err := s.pass(s.invalidateEvent(x, t), t)
			if err != nil {
				return nil, err
			}
			s.pending, s.ended = nil, true
			s.advance(t)
			if keep {
				out = append(out, raw)
			}
			continue
		}
		now := time.Now()
		n, last, ok := s.eng.ReadOplog(s.at, s.buf[:min(len(s.buf), size-len(out))])
		if !ok || s.eng.Forgot(s.scope.DB, s.at) {
			return nil, historyLost()
		}
		if s.mongos != nil && (n == 0 || s.held(s.buf[0], now)) {
			if s.merge(s.buf[:n], now) {
				break
			}
			continue
		}
		if n == 0 { // everything up to last has been read
			if value.CompareTimestamps(last, s.from) >= 0 {
				s.advance(s.mark(last))
			}
			break
		}
		for _, x := range s.buf[:n] {
			if s.held(x, now) {
				break
			}
			if !s.covers(x) || value.CompareTimestamps(x.At, s.from) < 0 {
				s.at++
				continue
			}
			if s.missed != "" {
				return nil, notFound(s.missed)
			}
			t := s.tokenFor(x)
			raw, keep, err := s.event(x, t)
			if err != nil {
				return nil, err
			}
			if keep && raw != nil {
				if bytes += len(raw) + 12; bytes > maxBatchBytes && len(out) > 0 {
					return out, nil
				}
				out = append(out, raw)
			}
			s.at++
			if len(s.fragments) > 0 {
				break
			}
			s.advance(t)
			if s.invalidates(x) {
				s.pending = x
				break
			}
		}
	}
	return out, nil
}

// moreStream runs getMore: it waits for events, a kill, a step-down or the client's end.
func (r *request) moreStream(ctx context.Context, c *cursor, size int) (reply bson.D, ended bool, err error) {
	s := c.stream
	wait := defaultAwait
	if v, ok := value.Get(r.body, "maxTimeMS"); ok {
		ms, isInt := value.AsInt(v)
		if !isInt || ms < 0 {
			return nil, false, mongoerr.New(mongoerr.BadValue, "maxTimeMS must be a whole number that is not negative")
		}
		wait = time.Duration(ms) * time.Millisecond
	}
	if r.srv.opts.DocumentDB {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	_, stepped := r.srv.primary()
	for {
		changed, _ := s.eng.Changed()
		docs, err := s.fill(size)
		if err != nil {
			return nil, true, err
		}
		if len(docs) > 0 || s.ended {
			return s.reply(c, docs), s.ended, nil
		}
		ripe, _ := soon(s.ripe) // what is left of it when something else comes first is collected
		select {
		case <-changed:
		case <-ripe:
		case <-timer.C:
			s.eng.Heartbeat()
			return s.reply(c, nil), false, nil
		case <-c.killed:
			return nil, true, c.cause
		case <-stepped:
			return nil, true, errSteppedDown
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func (s *stream) reply(c *cursor, docs []bson.Raw) bson.D {
	id := c.id
	if s.ended {
		id = 0
	}
	return s.batch("nextBatch", docs, id, c.ns)
}

func (s *stream) batch(name string, docs []bson.Raw, id int64, ns string) bson.D {
	cursor := bson.D{{Key: name, Value: docs}}
	if !s.opaque {
		cursor = append(cursor, bson.E{Key: "postBatchResumeToken", Value: s.tokenDoc})
	}
	return bson.D{{Key: "cursor", Value: append(cursor, bson.D{{Key: "id", Value: id}, {Key: "ns", Value: ns}}...)}}
}
