package mongo

import (
	"context"
	"crypto/sha256"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// open is a transaction that waits for its client's next statement.
type open struct {
	lsid   bson.Raw
	number int64
	began  time.Time
	used   time.Time
	active time.Duration // in its statements, at least a microsecond each
	client string
	app    string
}

// idle returns the transactions in which no statement runs just now, in no order. Nothing of them
// ends with the connection that they came on.
func (t *sessions) idle() (list []open) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for lsid, s := range t.all {
		select {
		case s.busy <- struct{}{}:
			if s.state == inProgress && t.eng.Open(s.txn) {
				o := s.open
				o.lsid, o.number = bson.Raw(lsid), s.number
				list = append(list, o)
			}
			<-s.busy
		default:
		}
	}
	return list
}

// currentOp returns the first stage of a pipeline of the admin database: with idleSessions, the
// open transactions. What runs is not listed.
func (r *request) currentOp(spec any) (bson.A, error) {
	options, ok := spec.(bson.D)
	if !ok {
		return nil, mongoerr.New(mongoerr.FailedToParse, "$currentOp options must be specified in an object, but found: %v", spec)
	}
	n, isNumber := value.AsInt(r.body[0].Value)
	if r.db != "admin" || !isNumber || n != 1 {
		return nil, mongoerr.New(mongoerr.InvalidNamespace, "$currentOp must be run against the 'admin' database with {aggregate: 1}")
	}
	idle, local := false, false
	for _, o := range options {
		given, isBool := o.Value.(bool)
		switch o.Key {
		case "idleSessions":
			idle = given
		case "localOps":
			local = given
		case "allUsers", "idleConnections", "idleCursors", "truncateOps", "targetAllNodes":
		default:
			return nil, mongoerr.New(mongoerr.FailedToParse, "Unrecognized option '%s' in $currentOp stage.", o.Key)
		}
		if o.Key == "idleCursors" && given {
			return nil, mongoerr.Unsupported("idleCursors of $currentOp")
		}
		if !isBool {
			return nil, mongoerr.New(mongoerr.FailedToParse, "The '%s' parameter of the $currentOp stage must be a boolean value", o.Key)
		}
	}
	found := bson.A{}
	if !idle || (local && r.srv.opts.Mongos != nil) { // the transactions are the shards'
		return found, nil
	}
	now, nobody := time.Now(), sha256.Sum256(nil)
	for _, t := range r.srv.sessions.idle() {
		d := bson.D{
			{Key: "type", Value: "idleSession"},
			{Key: "host", Value: r.srv.opts.Host},
			{Key: "desc", Value: "inactive transaction"},
			{Key: "client", Value: t.client},
			{Key: "appName", Value: t.app},
			{Key: "lsid", Value: bson.D{{Key: "id", Value: t.lsid.Lookup("id")}, {Key: "uid", Value: bson.Binary{Data: nobody[:]}}}},
			{Key: "transaction", Value: bson.D{
				{Key: "parameters", Value: bson.D{{Key: "txnNumber", Value: t.number}, {Key: "autocommit", Value: false}}},
				{Key: "startWallClockTime", Value: t.began.Format(time.RFC3339Nano)},
				{Key: "timeOpenMicros", Value: now.Sub(t.began).Microseconds()},
				{Key: "timeActiveMicros", Value: t.active.Microseconds()},
				{Key: "timeInactiveMicros", Value: now.Sub(t.used).Microseconds()},
				{Key: "expiryTime", Value: t.began.Add(r.srv.opts.TransactionLifetime).Format(time.RFC3339Nano)},
			}},
			{Key: "waitingForLock", Value: false},
			{Key: "active", Value: false},
		}
		if r.srv.opts.Mongos != nil {
			d = append(bson.D{{Key: "shard", Value: shardNames[0]}}, d...)
		}
		found = append(found, d)
	}
	return found, nil
}

func runCurrentOp(_ context.Context, r *request) (bson.D, error) {
	return bson.D{{Key: "inprog", Value: bson.A{}}}, r.adminOnly()
}

func runKillSessions(ctx context.Context, r *request) (bson.D, error) {
	list, ok := r.body[0].Value.(bson.A)
	if !ok {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field 'killSessions.killSessions' is the wrong type, expected type 'array'")
	}
	if len(list) == 0 {
		return runKillAllSessions(ctx, r)
	}
	for _, item := range list {
		d, ok := item.(bson.D)
		if !ok {
			return nil, mongoerr.New(mongoerr.TypeMismatch, "killSessions needs documents with an id")
		}
		raw := value.Encode(d)
		r.srv.sessions.drop(raw)
		r.srv.cursors.killOf(raw)
	}
	return bson.D{}, nil
}
