package mongo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/wire"
)

// request is one command on its way through the server.
type request struct {
	srv    *Server
	conn   *conn
	cmd    *command
	name   string
	db     string
	body   bson.D
	raw    bson.Raw
	seqs   []wire.Sequence
	lsid   bson.Raw
	number int64 // txnNumber; valid when numbered
	// numbered and multi distinguish a retryable write from a transaction's statement.
	numbered bool
	multi    bool        // autocommit: false
	txn      *engine.Txn // of a running transaction
	session  *session    // of a retryable write
	view     engine.View
	unmet    bson.D // the write concern error, if the write concern is not fulfilled
	stream   bool   // the command opens or reads a change stream
	env      *query.Env
}

func (r *request) get(key string) any {
	v, ok := value.Get(r.body, key)
	if !ok {
		return nil
	}
	return v
}

func (r *request) has(key string) bool { _, ok := value.Get(r.body, key); return ok }

// flag reads a boolean option.
func (r *request) flag(key string) bool {
	v, _ := value.Get(r.body, key)
	if n, ok := value.AsFloat(v); ok {
		return n != 0
	}
	return v == true
}

// doc reads a document option; an absent one is empty.
func (r *request) doc(key string) (bson.D, error) {
	switch t := r.get(key).(type) {
	case nil:
		return bson.D{}, nil
	case bson.D:
		return t, nil
	default:
		return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type 'object'", r.name, key, query.TypeName(t))
	}
}

// int reads a whole number; absent gives the default.
func (r *request) int(key string, absent int64) (int64, error) {
	v, ok := value.Get(r.body, key)
	if !ok || v == nil {
		return absent, nil
	}
	n, ok := value.AsInt(v)
	if !ok {
		return 0, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected a whole number", r.name, key, query.TypeName(v))
	}
	return n, nil
}

// ns returns the collection that the command's first field names.
func (r *request) ns() (engine.NS, error) {
	s, ok := r.body[0].Value.(string)
	if ok && s == "" {
		return engine.NS{}, mongoerr.New(mongoerr.InvalidNamespace, "Invalid namespace specified '%s.'", r.db)
	}
	if !ok {
		code := int32(mongoerr.InvalidNamespace)
		if r.name == "find" {
			code = mongoerr.BadValue
		}
		return engine.NS{}, mongoerr.New(code, "collection name has invalid type %s", query.TypeName(r.body[0].Value))
	}
	return engine.NS{DB: r.db, Coll: s}, nil
}

// list gives the documents of a kind 1 section, or of an array in the body.
func (r *request) list(key string) ([]bson.Raw, error) {
	for _, s := range r.seqs {
		if s.Name == key {
			return s.Docs, nil
		}
	}
	rv, ok := value.RawField(r.raw, key)
	if !ok || rv.Type != bson.TypeArray {
		return nil, mongoerr.New(mongoerr.MissingField, "BSON field '%s.%s' is missing but a required field", r.name, key)
	}
	values, err := bson.RawArray(rv.Value).Values()
	if err != nil {
		return nil, mongoerr.New(22, "Invalid BSON: %v", err)
	}
	out := make([]bson.Raw, len(values))
	for i, v := range values {
		if v.Type != bson.TypeEmbeddedDocument {
			return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.%s.%d' is the wrong type, expected type 'object'", r.name, key, i)
		}
		out[i] = bson.Raw(v.Value)
	}
	return out, nil
}

// generic fields every command takes.
var generic = []string{
	"$db", "lsid", "txnNumber", "autocommit", "startTransaction", "$clusterTime", "$readPreference", "readConcern", "writeConcern", "maxTimeMS", "comment",
	"apiVersion", "apiStrict", "apiDeprecationErrors",
}

// dispatch answers one message. Errors are only errCloseConnection.
func (s *Server) dispatch(ctx context.Context, c *conn, m *wire.Message) (bson.D, error) {
	r, err := s.parse(c, m)
	if err != nil {
		return s.finish(r, nil, err), nil
	}
	if app, ok := value.Lookup(r.body, "client.application.name"); ok && r.cmd.hello {
		r.conn.app, _ = app.(string)
	}
	point := s.fail.hit(r)
	if point != nil && point.block > 0 {
		select {
		case <-time.After(point.block):
		case <-ctx.Done():
			return nil, errCloseConnection
		}
	}
	if point != nil && point.closeConnection {
		return nil, errCloseConnection
	}
	var reply bson.D
	if point != nil && point.code != 0 {
		if slices.Contains(stateChange, point.code) {
			s.mu.Lock()
			s.topology.bump() // a client that has marked this server unknown checks it again at once
			s.mu.Unlock()
		}
		r.stream = (r.name == "aggregate" || point.checkedOut) && s.isStream(r)
		failed := mongoerr.New(point.code, "Failing command via 'failCommand' failpoint")
		if point.labels != nil {
			failed.Labels = *point.labels
			return s.finish(nil, nil, failed), nil
		}
		return s.finish(r, nil, failed), nil
	}
	if reply, err = s.run(ctx, r); errors.Is(err, errCloseConnection) {
		return nil, errCloseConnection
	}
	if err != nil && s.opts.Mongos != nil {
		err = cloaked(mongoerr.From(err))
	}
	if unmet := r.concern(); unmet != nil && err == nil {
		reply = append(slices.Clone(reply), bson.E{Key: "writeConcernError", Value: unmet})
	}
	if s.fail.lost(r.name) {
		return nil, errCloseConnection
	}
	if err == nil && point != nil && point.concern != nil {
		reply = append(slices.Clone(reply), bson.E{Key: "writeConcernError", Value: point.concern})
		if labels := point.concernLabels(r); len(labels) > 0 {
			reply = append(reply, bson.E{Key: "errorLabels", Value: labels})
		}
	}
	return s.finish(r, reply, err), nil
}

func (s *Server) parse(c *conn, m *wire.Message) (*request, error) {
	body, err := value.Decode(m.Body)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, mongoerr.New(mongoerr.FailedToParse, "an empty command")
	}
	r := &request{srv: s, conn: c, name: body[0].Key, body: body, raw: m.Body, seqs: m.Sequences}
	if db, ok := value.Get(body, "$db"); ok {
		if r.db, ok = db.(string); ok && !validDatabase(r.db) {
			return r, mongoerr.New(mongoerr.InvalidNamespace, "Invalid database name: '%s'", r.db)
		}
	} else if m.OpCode == wire.OpQuery {
		r.db = strings.TrimSuffix(m.Namespace, ".$cmd")
	}
	if r.db == "" {
		return r, mongoerr.New(40571, "OP_MSG requests require a $db argument")
	}
	if s.opts.NoHello && r.name == "hello" {
		return r, mongoerr.New(mongoerr.CommandNotFound, "no such command: 'hello'")
	}
	if r.cmd = commands[r.name]; r.cmd == nil {
		return r, unknownCommand(r.name)
	}
	if m.OpCode == wire.OpQuery && !r.cmd.hello {
		return r, mongoerr.New(352, "Unsupported OP_QUERY command: %s. The client driver may require an upgrade.", r.name)
	}
	if lsid, ok := value.RawField(m.Body, "lsid"); ok && lsid.Type == bson.TypeEmbeddedDocument {
		r.lsid = bson.Raw(lsid.Value)
	}
	if n, ok := value.Get(body, "txnNumber"); ok {
		r.number, r.numbered = value.AsInt(n)
	}
	if a, ok := value.Get(body, "autocommit"); ok {
		if a != false {
			return r, mongoerr.New(mongoerr.InvalidOptions, "autocommit must be false")
		}
		r.multi = true
	} else if r.has("startTransaction") {
		return r, mongoerr.New(mongoerr.InvalidOptions, "Specifying startTransaction requires that autocommit be specified, too")
	}
	return r, nil
}

// validDatabase reports whether a database can have the name; a server checks that for every
// command, including those that read.
func validDatabase(name string) bool {
	return name != "" && len(name) <= 63 && !strings.ContainsAny(name, "/\\. \"$\x00")
}

func (s *Server) run(ctx context.Context, r *request) (bson.D, error) {
	if err := r.throughMongos(); err != nil {
		return nil, err
	}
	if err := r.checkFields(); err != nil {
		return nil, err
	}
	if err := r.checkVersion(); err != nil {
		return nil, err
	}
	if ok, _ := s.primary(); !ok && !r.cmd.anywhere && s.opts.Mongos == nil {
		if r.cmd.write {
			return nil, mongoerr.New(mongoerr.NotWritablePrimary, "not primary")
		}
		if !r.secondaryOk() {
			return nil, mongoerr.New(mongoerr.NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false")
		}
	}
	if v, ok := value.Get(r.body, "maxTimeMS"); ok && !r.cmd.awaits {
		ms, isInt := value.AsInt(v)
		if !isInt || ms < 0 {
			return nil, mongoerr.New(mongoerr.BadValue, "maxTimeMS must be a whole number that is not negative")
		}
		if ms > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(ms)*time.Millisecond, mongoerr.New(mongoerr.MaxTimeMSExpired, "operation exceeded time limit"))
			defer cancel()
		}
	}
	if s.opts.Mongos != nil && !r.cmd.anywhere {
		if err := s.awaitElection(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.readConcern(); err != nil {
		return nil, err
	}
	vars, err := r.doc("let")
	if err != nil {
		return nil, err
	}
	var answered atomic.Bool // cursors keep the environment
	defer answered.Store(true)
	r.env = &query.Env{Now: time.Now(), ClusterTime: s.eng.Now(), Version: [2]int32{s.opts.Version[0], s.opts.Version[1]}, Collection: func(name string) ([]bson.D, error) {
		return r.documents(engine.NS{DB: r.db, Coll: name})
	}, Interrupted: func() error {
		if ctx.Err() == nil || answered.Load() {
			return nil
		}
		return context.Cause(ctx)
	}}
	if r.env.Collation, err = query.ParseCollation(r.get("collation")); err != nil {
		return nil, err
	}
	if err := r.env.Let(vars); err != nil {
		return nil, err
	}
	if r.flag("bypassDocumentValidation") {
		ctx = engine.WithoutValidation(ctx)
	}
	reply, err := s.sessions.around(ctx, r, func() (bson.D, error) { return r.cmd.run(ctx, r) })
	if concern, _ := r.get("readConcern").(bson.D); err == nil && field(concern, "level") == "linearizable" {
		s.eng.Confirm()
	}
	if err == nil {
		err = r.awaitMajority(ctx)
	}
	return reply, err
}

// concern returns the error of a write concern that one node cannot fulfil. As on a server, the
// write has happened anyway.
func (r *request) concern() bson.D {
	if !r.writes() || r.unmet != nil {
		return r.unmet
	}
	d, _ := r.get("writeConcern").(bson.D)
	w, ok := value.Get(d, "w")
	if n, isInt := value.AsInt(w); !ok || w == "majority" || (isInt && n <= 1) {
		return nil
	}
	code, msg := int32(mongoerr.UnsatisfiableWriteConcern), "Not enough data-bearing nodes"
	if mode, isString := w.(string); isString {
		code, msg = mongoerr.UnknownReplWriteConcern, "No write concern mode named '"+mode+"' found in replica set configuration"
	}
	return bson.D{{Key: "code", Value: code}, {Key: "codeName", Value: mongoerr.Name(code)}, {Key: "errmsg", Value: msg}}
}

func (r *request) secondaryOk() bool {
	d, _ := r.get("$readPreference").(bson.D)
	mode, _ := value.Get(d, "mode")
	return mode != nil && mode != "primary"
}

func (r *request) checkFields() error {
	if r.cmd.hello {
		return nil
	}
	for _, e := range r.body[1:] {
		if slices.Contains(generic, e.Key) || slices.Contains(r.cmd.fields, e.Key) {
			continue
		}
		code := int32(mongoerr.UnknownField)
		if r.srv.opts.before(5, 0) && (r.name == "find" || r.name == "aggregate") {
			code = mongoerr.FailedToParse
		}
		return mongoerr.New(code, "BSON field '%s.%s' is an unknown field (or not supported by the embedded MongoDB).", r.name, e.Key)
	}
	return r.checkAPI()
}

// stable are the commands of version 1 of the Stable API.
var stable = fields("abortTransaction aggregate bulkWrite collMod commitTransaction count create createIndexes delete drop dropDatabase dropIndexes " +
	"endSessions explain find findAndModify getMore hello insert killCursors listCollections listDatabases listIndexes ping refreshSessions update")

// checkAPI checks what the command asks of the Stable API.
func (r *request) checkAPI() error {
	for _, key := range []string{"apiVersion", "apiStrict", "apiDeprecationErrors"} {
		v, has := value.Get(r.body, key)
		_, isString := v.(string)
		_, isBool := v.(bool)
		switch {
		case !has:
		case key == "apiVersion" && !isString, key != "apiVersion" && !isBool:
			return mongoerr.New(mongoerr.TypeMismatch, "BSON field 'APIParametersFromClient.%s' is the wrong type '%s'", key, query.TypeName(v))
		case !r.has("apiVersion"):
			return mongoerr.New(4886600, "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion")
		case key == "apiVersion" && v != "1":
			return mongoerr.New(mongoerr.APIVersionError, "API version must be \"1\"")
		case key == "apiStrict" && v == true && !slices.Contains(stable, r.name):
			return mongoerr.New(mongoerr.APIStrictError, "Provided apiStrict:true, but the command %s is not in API Version 1", r.name)
		}
	}
	return nil
}

// readConcern accepts what a one-node set fulfils anyway, and sets the view of
// snapshot reads.
func (r *request) readConcern() error {
	d, err := r.doc("readConcern")
	if err != nil {
		return err
	}
	level, _ := value.Get(d, "level")
	at, atGiven := value.Get(d, "atClusterTime")
	from, after := value.Get(d, "afterClusterTime")
	if ts, ok := from.(bson.Timestamp); ok {
		known, _ := r.get("$clusterTime").(bson.D) // the client's own, to which a server advances
		client, _ := field(known, "clusterTime").(bson.Timestamp)
		if now := r.srv.eng.Now(); value.CompareTimestamps(ts, now) > 0 && value.CompareTimestamps(ts, client) > 0 {
			return mongoerr.New(mongoerr.InvalidOptions, "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested clusterTime: %v; current clusterTime: %v", ts, now)
		}
	}
	switch level {
	case nil, "local", "available", "majority", "linearizable":
		if atGiven {
			return mongoerr.New(mongoerr.InvalidOptions, "atClusterTime is only valid with readConcern level snapshot")
		}
		if m := r.srv.isolated(); m != nil && level == "majority" {
			r.view.At = m.since
		}
	case "snapshot":
		if r.multi {
			return nil
		}
		if r.srv.opts.before(5, 0, 0) {
			return mongoerr.New(mongoerr.InvalidOptions, "readConcern level snapshot is only valid in multi-statement transactions")
		}
		if !r.cmd.snapshot {
			return mongoerr.New(mongoerr.InvalidOptions, "readConcern level snapshot is not supported for %s", r.name)
		}
		if after && atGiven {
			return mongoerr.New(mongoerr.InvalidOptions, "afterClusterTime and atClusterTime exclude each other")
		}
		r.view.At = r.srv.eng.Now()
		if m := r.srv.isolated(); m != nil {
			r.view.At = m.since
		}
		if atGiven {
			ts, ok := at.(bson.Timestamp)
			if !ok {
				return mongoerr.New(mongoerr.TypeMismatch, "atClusterTime must be a timestamp")
			}
			if err := r.srv.eng.SnapshotAt(ts); err != nil {
				return err
			}
			r.view.At = ts
		}
	default:
		return mongoerr.New(mongoerr.FailedToParse, "readConcern level %v is not known", level)
	}
	for _, e := range d {
		switch e.Key {
		case "level", "atClusterTime", "afterClusterTime", "provenance":
		default:
			return mongoerr.New(mongoerr.UnknownField, "BSON field 'readConcern.%s' is an unknown field", e.Key)
		}
	}
	return nil
}

// finish completes a reply with its status, labels and cluster time.
func (s *Server) finish(r *request, reply bson.D, err error) bson.D {
	if err != nil {
		e := mongoerr.From(err)
		if r != nil {
			e = withLabels(r, e)
		}
		reply = errorReply(e)
	} else if _, ok := value.Get(reply, "ok"); !ok {
		reply = append(slices.Clip(reply), bson.E{Key: "ok", Value: 1.0})
	}
	if s.opts.DocumentDB {
		return reply
	}
	now := s.eng.Now()
	return append(slices.Clip(reply), bson.D{
		{Key: "$clusterTime", Value: bson.D{
			{Key: "clusterTime", Value: now},
			{Key: "signature", Value: bson.D{{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)}}},
		}},
		{Key: "operationTime", Value: now},
	}...)
}
