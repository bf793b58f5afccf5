package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/engine"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/keystring"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/mongoerr"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/query"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/value"
)

// stream is a change stream's place in the oplog. It belongs to its cursor.
type stream struct {
	eng      *engine.Engine
	scope    engine.NS // Coll "": a database; both "": the cluster
	full     string    // fullDocument
	before   string    // fullDocumentBeforeChange
	expanded bool
	stages   []query.Stage
	split    bool // $changeStreamSplitLargeEvent
	opaque   bool // as Azure DocumentDB: see documentdb.go

	at      uint64         // position of the next entry
	from    bson.Timestamp // entries before this are not looked at
	pending *engine.Entry  // its invalidate event is next
	ended   bool           // the invalidate was delivered

	fragments []fragment // of the event before at: what is left to deliver
	token     string     // of the last batch: never goes back
	tokenDoc  bson.Raw
	buf       [256]*engine.Entry
	scratch   []byte
}

const (
	splitStage   = "$changeStreamSplitLargeEvent"
	defaultAwait = time.Second
	// A change event may be a little larger than a document.
	maxEvent = value.MaxDocument + 16<<10
)

// openStream is aggregate with a leading $changeStream.
func (r *request) openStream(ctx context.Context, spec any, rest bson.A, opts bson.D) (bson.D, error) {
	if r.multi {
		return nil, mongoerr.New(mongoerr.OperationNotInTransaction, "Operation not permitted in transaction :: caused by :: Aggregation stage $changeStream cannot run within a multi-document transaction")
	}
	d, ok := spec.(bson.D)
	if !ok {
		return nil, mongoerr.New(50808, "$changeStream stage expects a document as argument")
	}
	s := &stream{eng: r.srv.eng, full: "default", before: "off"}
	wire, err := r.streamScope(s, d)
	if err != nil {
		return nil, err
	}
	if r.srv.opts.DocumentDB {
		if err := s.reduce(rest); err != nil {
			return nil, err
		}
	}
	if n := len(rest); n > 0 {
		last, _ := rest[n-1].(bson.D)
		if s.split = len(last) == 1 && last[0].Key == splitStage; s.split {
			if r.srv.opts.NoSplit {
				return nil, mongoerr.New(40324, "Unrecognized pipeline stage name: '%s'", splitStage)
			}
			if arg, ok := last[0].Value.(bson.D); !ok || len(arg) > 0 {
				return nil, mongoerr.New(7182800, "%s requires an empty object", splitStage)
			}
			rest = rest[:n-1]
		}
	}
	if s.stages, err = streamStages(rest, r.env); err != nil {
		return nil, err
	}
	if err := s.start(d); err != nil {
		return nil, err
	}
	v, given := value.Get(opts, "batchSize")
	size, err := batchSize(v, given)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		size = firstBatch
	}
	c := &cursor{ns: wire, lsid: r.lsid, stream: s}
	docs, err := s.fill(size)
	if err != nil {
		return nil, err
	}
	id := int64(0)
	if !s.ended {
		r.srv.cursors.add(c)
		id = c.id
	}
	return s.batch("firstBatch", docs, id, wire), nil
}

// streamScope reads what is watched, and every option but the starting point.
func (r *request) streamScope(s *stream, d bson.D) (ns string, err error) {
	cluster := false
	for _, e := range d {
		var ok bool
		switch e.Key {
		case "fullDocument":
			s.full, ok = e.Value.(string)
			switch s.full {
			case "default", "updateLookup", "whenAvailable", "required":
			default:
				ok = false
			}
		case "fullDocumentBeforeChange":
			s.before, ok = e.Value.(string)
			switch s.before {
			case "off", "whenAvailable", "required":
			default:
				ok = false
			}
		case "showExpandedEvents":
			s.expanded, ok = e.Value.(bool)
		case "allChangesForCluster":
			cluster, ok = e.Value.(bool)
		case "resumeAfter", "startAfter":
			_, ok = e.Value.(bson.D)
		case "startAtOperationTime":
			_, ok = e.Value.(bson.Timestamp)
		default:
			return "", mongoerr.New(mongoerr.UnknownField, "BSON field '$changeStream.%s' is an unknown field (or not supported by the embedded MongoDB).", e.Key)
		}
		if !ok {
			return "", mongoerr.New(mongoerr.BadValue, "$changeStream option %s cannot be %v", e.Key, e.Value)
		}
	}
	if coll, isColl := r.body[0].Value.(string); isColl {
		if cluster {
			return "", mongoerr.New(mongoerr.InvalidOptions, "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name")
		}
		s.scope = engine.NS{DB: r.db, Coll: coll}
		return s.scope.String(), nil
	}
	if cluster != (r.db == "admin") {
		return "", mongoerr.New(mongoerr.InvalidOptions, "a cluster-wide $changeStream needs 'allChangesForCluster:true' and the 'admin' database")
	}
	if !cluster {
		s.scope = engine.NS{DB: r.db}
	}
	return r.db + ".$cmd.aggregate", nil
}

func streamStages(rest bson.A, env *query.Env) ([]query.Stage, error) {
	for _, item := range rest {
		d, _ := item.(bson.D)
		if len(d) != 1 {
			return nil, mongoerr.New(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		switch d[0].Key {
		case "$match", "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith":
		case "$redact":
			return nil, mongoerr.Unsupported("%s", d[0].Key)
		case splitStage:
			return nil, mongoerr.New(7182802, "%s must be the last stage in the pipeline", splitStage)
		case "$sort", "$limit", "$skip", "$group", "$unwind", "$count", "$out", "$merge", "$lookup", "$facet":
			return nil, mongoerr.New(mongoerr.IllegalOperation, "%s is not permitted in a $changeStream pipeline", d[0].Key)
		}
	}
	return query.CompilePipeline(rest, env)
}

// start finds where to begin and checks that it can still be read.
func (s *stream) start(d bson.D) error {
	after, hasAfter := value.Get(d, "resumeAfter")
	start, hasStart := value.Get(d, "startAfter")
	at, hasTime := value.Get(d, "startAtOperationTime")
	if hasAfter && hasStart {
		return mongoerr.New(50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage")
	}
	if hasTime && (hasAfter || hasStart) {
		return mongoerr.New(40674, "Only one type of resume option is allowed, but multiple were found")
	}
	switch {
	case hasAfter:
		return s.resume(after.(bson.D), false)
	case hasStart:
		return s.resume(start.(bson.D), true)
	case hasTime:
		return s.seek(at.(bson.Timestamp))
	}
	now := s.eng.Now()
	return s.seek(bson.Timestamp{T: now.T, I: now.I + 1})
}

func (s *stream) seek(at bson.Timestamp) error {
	position, ok := s.eng.Seek(at)
	if !ok {
		return historyLost()
	}
	s.at, s.from = position, at
	s.advance(keystring.HighWaterMark(at))
	return nil
}

func historyLost() error {
	return mongoerr.New(mongoerr.ChangeStreamHistoryLost, "Resume of change stream was not possible, as the resume point may no longer be in the oplog.")
}

// resume continues after a token: a high-water mark is a moment, an event's token
// has to be met again in the stream.
func (s *stream) resume(d bson.D, startAfter bool) error {
	d, err := s.readToken(d)
	if err != nil {
		return err
	}
	p, err := keystring.Parse(d)
	if err != nil {
		return err
	}
	if p.HighWater {
		return s.seek(p.Time)
	}
	if p.Invalidate && !startAfter {
		return mongoerr.New(mongoerr.InvalidResumeToken, "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.")
	}
	if !p.HasUUID && s.scope.Coll != "" && !p.Invalidate {
		return mongoerr.New(mongoerr.InvalidResumeToken, "Attempted to resume a single-collection change stream, but the resume token does not include a UUID.")
	}
	if err := s.seek(p.Time); err != nil {
		return err
	}
	for {
		n, _, ok := s.eng.ReadOplog(s.at, s.buf[:])
		if !ok {
			return historyLost()
		}
		for _, x := range s.buf[:n] {
			if x.At != p.Time {
				n = 0
				break
			}
			s.at++
			if !s.covers(x) {
				continue
			}
			t := token(x)
			if data, _ := t.Encode(); data == p.Data {
				if s.invalidates(x) {
					s.pending = x
				}
				s.advance(t)
				return nil
			}
			if within, err := s.resumeWithin(x, t, p.Data); within || err != nil {
				return err
			}
			t.Invalidate = true
			if data, _ := t.Encode(); data == p.Data && s.invalidates(x) {
				s.advance(t)
				return nil
			}
		}
		if n == 0 {
			return mongoerr.New(mongoerr.ChangeStreamFatalError, "cannot resume stream; the resume token was not found. {_data: \"%s\"}", p.Data)
		}
	}
}

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
	bytes := 0
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
			t := token(x)
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
		n, last, ok := s.eng.ReadOplog(s.at, s.buf[:min(len(s.buf), size-len(out))])
		if !ok {
			return nil, historyLost()
		}
		if n == 0 { // everything up to last has been looked at
			if value.CompareTimestamps(last, s.from) >= 0 {
				s.advance(keystring.HighWaterMark(last))
			}
			break
		}
		for _, x := range s.buf[:n] {
			if !s.covers(x) || value.CompareTimestamps(x.At, s.from) < 0 {
				s.at++
				continue
			}
			t := token(x)
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

// moreStream is getMore: it waits for events, a kill, a step-down or the client's end.
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
		select {
		case <-changed:
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
