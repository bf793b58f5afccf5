package mongo

import (
	"cmp"
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

const splitStage = "$changeStreamSplitLargeEvent"

// openStream runs aggregate with a leading $changeStream.
func (r *request) openStream(ctx context.Context, spec any, rest bson.A, opts bson.D) (bson.D, error) {
	if r.multi {
		return nil, mongoerr.New(mongoerr.OperationNotInTransaction, "Operation not permitted in transaction :: caused by :: Aggregation stage $changeStream cannot run within a multi-document transaction")
	}
	d, ok := spec.(bson.D)
	if !ok {
		return nil, mongoerr.New(50808, "$changeStream stage expects a document as argument")
	}
	s := &stream{mongos: r.srv.opts.Mongos, newest: r.srv.newestToken(), eng: r.srv.eng, full: "default", before: "off", lenient: r.srv.opts.AcceptLostTokens, before5: r.srv.opts.before(5, 0, 0), before6: r.srv.opts.before(6, 0, 0), byName: !r.srv.opts.before(6, 0, 27)}
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
				return nil, mongoerr.New(cmp.Or(r.srv.opts.NoSplitCode, 40324), "Unrecognized pipeline stage name: '%s'", splitStage)
			}
			if arg, ok := last[0].Value.(bson.D); !ok || len(arg) > 0 {
				return nil, mongoerr.New(7182800, "%s requires an empty object", splitStage)
			}
			rest = rest[:n-1]
		}
	}
	s.version = r.srv.tokenVersion(s.split)
	if s.stages, err = streamStages(rest, r.env); err != nil {
		return nil, err
	}
	if s.early, err = early(rest, r.env); err != nil {
		return nil, err
	}
	if err := s.start(d); err != nil {
		if !s.later(d, err) {
			return nil, err
		}
	}
	v, given := value.Get(opts, "batchSize")
	size, err := batchSize(v, given)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		size = firstBatch
	}
	if s.mongos != nil {
		size = 0 // a mongos opens the shards' cursors and does not wait for their first batches
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
		if err := r.known("$changeStream." + e.Key); err != nil {
			return "", err
		}
		var ok bool
		switch e.Key {
		case "fullDocument":
			s.full, ok = e.Value.(string)
			if (s.full == "whenAvailable" || s.full == "required") && r.srv.opts.before(6, 0, 0) {
				return "", mongoerr.New(40575, "unrecognized value for the 'fullDocument' option to the $changeStream stage. Expected \"default\" or \"updateLookup\", got \"%s\"", s.full)
			}
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
	coll, isColl := r.body[0].Value.(string)
	if r.db == "config" || r.db == "local" || (r.db == "admin" && isColl) {
		return "", mongoerr.New(mongoerr.InvalidNamespace, "$changeStream may not be opened on the internal %s database", r.db)
	}
	if isColl {
		if info, _ := r.srv.eng.Lookup(engine.NS{DB: r.db, Coll: coll}); info.View {
			return "", mongoerr.New(mongoerr.ViewNotSupported, "Namespace %s.%s is a view, not a collection", r.db, coll)
		}
		switch {
		case coll == "":
			return "", mongoerr.New(mongoerr.InvalidNamespace, "Invalid namespace specified '%s.'", r.db)
		case strings.HasPrefix(coll, "system."):
			return "", mongoerr.New(mongoerr.InvalidNamespace, "$changeStream may not be opened on the internal %s.%s collection", r.db, coll)
		}
		if cluster {
			return "", mongoerr.New(mongoerr.InvalidOptions, "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name")
		}
		s.scope = engine.NS{DB: r.db, Coll: coll}
		return s.scope.String(), nil
	}
	if r.db == "admin" && !cluster {
		return "", mongoerr.New(mongoerr.InvalidNamespace, "$changeStream may not be opened on the internal admin database")
	}
	if cluster && r.db != "admin" {
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
			return nil, mongoerr.Unsupported("the stage %s of a change stream", d[0].Key)
		case splitStage:
			return nil, mongoerr.New(7182802, "%s must be the last stage in the pipeline", splitStage)
		case "$sort", "$limit", "$skip", "$group", "$unwind", "$count", "$sample", "$out", "$merge", "$lookup", "$facet":
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
	if !ok || s.eng.Forgot(s.scope.DB, position) {
		return historyLost()
	}
	s.at, s.from = position, at
	s.advance(s.mark(at))
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
	if p.Version > s.newest {
		return mongoerr.New(50795, "Invalid Resume Token: only supports version 0 or 1")
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
		if s.lenient && s.scope.Coll != "" {
			return s.pretend(p.Data)
		}
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
			t := s.tokenFor(x)
			is := func(t keystring.Token) bool { // in the version of the token that the client has
				t.Version = p.Version
				data, _ := t.Encode()
				return data == p.Data
			}
			if is(t) {
				if s.invalidates(x) {
					s.pending = x
				}
				s.advance(t)
				return nil
			}
			if within, err := s.resumeWithin(x, t, is); within || err != nil {
				return err
			}
			t.Invalidate = true
			if is(t) && s.invalidates(x) {
				s.advance(t)
				return nil
			}
		}
		if n == 0 {
			return notFound(p.Data)
		}
	}
}

// pretend continues from the oldest entry as if the token might still be found. It will not be: the
// first event of the stream is another one.
func (s *stream) pretend(token string) error {
	oldest := s.eng.FirstTime()
	s.missed = token
	return s.seek(oldest)
}

func notFound(token string) error {
	return mongoerr.New(mongoerr.ChangeStreamFatalError, "cannot resume stream; the resume token was not found. {_data: \"%s\"}", token)
}
