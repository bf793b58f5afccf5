package mongo

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Mongos makes a server act as the mongos of a sharded cluster of two shards, of which one holds
// all data. It differs from a replica set's member in what a client sees: hello, the database local
// (refused), the database config, commands, document keys, change streams that are merged from two
// shards and have an empty first batch, and elections, which a mongos waits for and hides. Source:
// the server's source (strategy.cpp, async_results_merger.cpp, rewrite_state_change_errors.cpp); it
// was not compared with a real mongos.
//
// Not modelled: the balancer, chunks that move, several mongos, unique indexes and upserts that
// need the shard key.
type Mongos struct {
	// ShardKeys has the field by which a collection is sharded, by "database.collection". Others
	// are not sharded: their document keys are the _id alone.
	ShardKeys map[string]string
	// ConfigForbidden refuses to read the database config, as a cluster does to a user who may read
	// only the source.
	ConfigForbidden bool
	// Behind is how far the other shard's oplog lags: a change is delivered after that time, and no
	// high-water mark is younger.
	Behind time.Duration
}

// The names of the two shards; the first holds the data.
var shardNames = []string{"shard0", "shard1"}

// electionPatience is how long a mongos waits for a shard's primary.
const electionPatience = 20 * time.Second

// notOfMongos are commands of a member of a replica set.
var notOfMongos = []string{"replSetGetConfig", "replSetStepDown", "top"}

// throughMongos refuses what a mongos refuses.
func (r *request) throughMongos() error {
	switch {
	case r.srv.opts.Mongos == nil:
		return nil
	case r.db == "local":
		return mongoerr.New(mongoerr.IllegalOperation, "Can't use 'local' database through mongos")
	case r.db == "config" && r.srv.opts.Mongos.ConfigForbidden:
		return mongoerr.New(mongoerr.Unauthorized, "not authorized on config to execute command %s", r.name)
	case r.name == "replSetGetStatus":
		refused := mongoerr.New(125, "replSetGetStatus is not supported through mongos")
		refused.Extra = bson.D{{Key: "info", Value: "mongos"}}
		return refused
	case slices.Contains(notOfMongos, r.name):
		return mongoerr.New(mongoerr.CommandNotFound, "no such command: '%s'", r.name)
	}
	return nil
}

// awaitElection returns when the shard has a primary again.
func (s *Server) awaitElection(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, electionPatience, mongoerr.New(133, "Could not find host matching read preference { mode: \"primary\" } for set %s", shardNames[0]))
	defer cancel()
	for {
		s.mu.Lock()
		down := time.Until(s.down)
		s.mu.Unlock()
		if down <= 0 {
			return nil
		}
		select {
		case <-time.After(down):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cloaked returns an error of a shard as a mongos passes it on: one of an election must not make
// the client doubt the mongos.
func cloaked(e *mongoerr.Error) *mongoerr.Error {
	if !slices.Contains(stateChange, e.Code) {
		return e
	}
	out := *mongoerr.New(mongoerr.HostUnreachable, "%s", e.Msg)
	out.Labels = e.Labels
	return &out
}

// configured gives the documents of a collection of the database config; ok is false if a mongos
// has none of that name.
func (s *Server) configured(coll string) (docs []bson.D, ok bool) {
	switch coll {
	case "version":
		sum := sha256.Sum256(s.topology.process[:])
		d := bson.D{{Key: "_id", Value: int32(1)}}
		if s.opts.before(8, 0, 0) {
			d = append(d, bson.E{Key: "minCompatibleVersion", Value: int32(5)}, bson.E{Key: "currentVersion", Value: int32(6)})
		}
		return []bson.D{append(d, bson.E{Key: "clusterId", Value: bson.ObjectID(sum[:12])})}, true
	case "shards":
		for _, name := range shardNames {
			docs = append(docs, bson.D{{Key: "_id", Value: name}, {Key: "host", Value: name + "/" + s.advertised()}, {Key: "state", Value: int32(1)}})
		}
		return docs, true
	case "databases":
		for _, c := range s.eng.Collections("") {
			if known := slices.ContainsFunc(docs, func(d bson.D) bool { return d[0].Value == c.NS.DB }); !known && c.NS.DB != "admin" && c.NS.DB != "config" {
				docs = append(docs, bson.D{{Key: "_id", Value: c.NS.DB}, {Key: "primary", Value: shardNames[0]}, {Key: "partitioned", Value: true}})
			}
		}
		return docs, true
	case "collections":
		for _, c := range s.eng.Collections("") {
			key, sharded := s.opts.Mongos.ShardKeys[c.NS.String()]
			if !sharded {
				continue
			}
			d := bson.D{{Key: "_id", Value: c.NS.String()}}
			if s.opts.before(5, 0, 0) {
				d = append(d, bson.E{Key: "dropped", Value: false})
			}
			docs = append(docs, append(d, bson.D{
				{Key: "key", Value: bson.D{{Key: key, Value: int32(1)}}},
				{Key: "unique", Value: false},
				{Key: "uuid", Value: bson.Binary{Subtype: 4, Data: c.UUID}},
				{Key: "noBalance", Value: false},
			}...))
		}
		return docs, true
	}
	return nil, false
}

// later keeps an error of the place where a stream is to begin for its first getMore, and reports
// whether it did: a mongos opens the shards' cursors with a batch size of 0, so that no oplog is
// read before.
func (s *stream) later(d bson.D, err error) bool {
	code := mongoerr.From(err).Code
	if s.mongos == nil || (code != mongoerr.ChangeStreamHistoryLost && code != mongoerr.ChangeStreamFatalError) {
		return false
	}
	s.failed = err
	for _, e := range d {
		switch at := e.Value.(type) {
		case bson.D: // resumeAfter, startAfter
			s.tokenDoc = value.Encode(at)
		case bson.Timestamp:
			s.tokenDoc = s.mark(at).Doc()
		}
	}
	return true
}

// held reports whether an entry waits for the other shard, whose oplog has not come to its time
// yet.
func (s *stream) held(x *engine.Entry, now time.Time) bool {
	if s.mongos == nil || now.Sub(x.Wall) >= s.mongos.Behind {
		return false
	}
	s.ripe = x.Wall.Add(s.mongos.Behind)
	return true
}

// merge advances the high-water mark to that of the shard that is behind. rest begins with the
// entry that is held back; if it is empty, all was read, and merge returns false if that is no
// longer so.
func (s *stream) merge(rest []*engine.Entry, now time.Time) bool {
	var at bson.Timestamp
	if len(rest) > 0 {
		at = rest[0].At
	} else {
		var ok bool
		if at, ok = s.eng.Elsewhere(s.at); !ok {
			return false
		}
	}
	if s.mongos.Behind > 0 {
		if behind := (bson.Timestamp{T: uint32(now.Add(-s.mongos.Behind).Unix()), I: 1}); behind.Before(at) {
			at = behind
		}
	}
	if value.CompareTimestamps(at, s.from) >= 0 {
		s.advance(s.mark(at))
	}
	return true
}

// documentKey returns how change events name an entry's document: by its shard key and its _id.
func documentKey(x *engine.Entry) bson.D {
	return append(slices.Clip(x.ShardKey), bson.E{Key: "_id", Value: x.ID})
}
