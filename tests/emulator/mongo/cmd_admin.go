package mongo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func runPing(context.Context, *request) (bson.D, error) { return bson.D{}, nil }

func runHello(ctx context.Context, r *request) (bson.D, error) {
	if r.has("topologyVersion") {
		if err := r.srv.awaitHello(ctx, r); err != nil {
			return nil, err
		}
	}
	return r.srv.helloReply(r.conn, r.name != "hello"), nil
}

// runExplain refuses by name: there are no query plans here to explain.
func runExplain(context.Context, *request) (bson.D, error) {
	return nil, mongoerr.Unsupported("the command explain")
}

func runBuildInfo(_ context.Context, r *request) (bson.D, error) {
	version := r.srv.opts.Version
	return bson.D{
		{Key: "version", Value: r.srv.version()},
		{Key: "gitVersion", Value: "embedded"},
		{Key: "modules", Value: []string{}},
		{Key: "versionArray", Value: bson.A{version[0], version[1], version[2], int32(0)}},
		{Key: "bits", Value: int32(64)},
		{Key: "debug", Value: false},
		{Key: "maxBsonObjectSize", Value: int32(value.MaxDocument)},
	}, nil
}

func (s *Server) version() string {
	return fmt.Sprintf("%d.%d.%d", s.opts.Version[0], s.opts.Version[1], s.opts.Version[2])
}

// runStepDown runs replSetStepDown. No other member can take over in a set of one, so it needs
// force.
func runStepDown(_ context.Context, r *request) (bson.D, error) {
	if r.db != "admin" {
		return nil, mongoerr.New(mongoerr.Unauthorized, "replSetStepDown may only be run against the admin database.")
	}
	seconds, ok := value.AsInt(r.body[0].Value)
	if !ok || seconds < 1 {
		return nil, mongoerr.New(mongoerr.BadValue, "stepdown period must be a positive integer")
	}
	if primary, _ := r.srv.primary(); !primary {
		return nil, mongoerr.New(mongoerr.NotWritablePrimary, "not primary so can't step down")
	}
	if !r.flag("force") {
		return nil, mongoerr.New(262, "No electable secondaries caught up; please use the 'force' argument to force node to step down.")
	}
	r.srv.StepDown(time.Duration(seconds) * time.Second)
	return bson.D{}, nil
}

func runServerStatus(_ context.Context, r *request) (bson.D, error) {
	r.srv.mu.Lock()
	conns := len(r.srv.conns)
	r.srv.mu.Unlock()
	up, process := time.Since(r.srv.started), "mongod"
	if r.srv.opts.Mongos != nil {
		process = "mongos"
	}
	return bson.D{
		{Key: "host", Value: r.srv.advertised()},
		{Key: "version", Value: r.srv.version()},
		{Key: "process", Value: process},
		{Key: "uptime", Value: up.Seconds()},
		{Key: "uptimeMillis", Value: up.Milliseconds()},
		{Key: "localTime", Value: time.Now()},
		{Key: "connections", Value: bson.D{{Key: "current", Value: int32(conns)}}},
	}, nil
}

func runGetParameter(_ context.Context, r *request) (bson.D, error) {
	known := bson.D{
		{Key: "enableTestCommands", Value: true},
		{Key: "authenticationMechanisms", Value: []string{}},
		{Key: "requireApiVersion", Value: false},
		{Key: "featureCompatibilityVersion", Value: bson.D{{Key: "version", Value: fmt.Sprintf("%d.%d", r.srv.opts.Version[0], r.srv.opts.Version[1])}}},
		{Key: "transactionLifetimeLimitSeconds", Value: int32(r.srv.opts.TransactionLifetime / time.Second)},
	}
	if r.body[0].Value == "*" {
		return known, nil
	}
	var out bson.D
	for _, e := range r.body[1:] {
		if v, ok := value.Get(known, e.Key); ok {
			out = append(out, bson.E{Key: e.Key, Value: v})
		}
	}
	if len(out) == 0 {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "no option found to get")
	}
	return out, nil
}

func runConfigureFailPoint(_ context.Context, r *request) (bson.D, error) {
	if r.db != "admin" {
		return nil, mongoerr.New(mongoerr.Unauthorized, "configureFailPoint may only be run against the admin database.")
	}
	switch r.body[0].Value {
	case "failCommand", "failGetMoreAfterCursorCheckout":
	case "onPrimaryTransactionalWrite":
		return r.configureTransactional()
	default:
		return nil, mongoerr.Unsupported("the fail point %v", r.body[0].Value)
	}
	times, skip, off, err := r.failMode()
	if err != nil {
		return nil, err
	}
	if off {
		r.srv.fail.set(nil, 0, 0)
		return bson.D{}, nil
	}
	data, err := r.doc("data")
	if err != nil {
		return nil, err
	}
	p, err := parseFailpoint(data)
	if err != nil {
		return nil, err
	}
	if r.body[0].Value != "failCommand" {
		p.commands, p.checkedOut = []string{"getMore"}, true
	}
	r.srv.fail.set(p, times, skip)
	return bson.D{}, nil
}

// failMode reads how often a fail point strikes; times is negative for always.
func (r *request) failMode() (times, skip int64, off bool, err error) {
	times = -1
	switch mode := r.get("mode").(type) {
	case string:
		switch mode {
		case "off":
			return 0, 0, true, nil
		case "alwaysOn":
		default:
			return 0, 0, false, mongoerr.New(mongoerr.BadValue, "unknown mode: %s", mode)
		}
	case bson.D:
		for _, e := range mode {
			n, ok := value.AsInt(e.Value)
			switch {
			case ok && e.Key == "times":
				times = n
			case ok && e.Key == "skip":
				skip = n
			default:
				return 0, 0, false, mongoerr.Unsupported("the fail point mode %v", mode)
			}
		}
	default:
		return 0, 0, false, mongoerr.New(mongoerr.BadValue, "mode must be a string or an object")
	}
	return times, skip, false, nil
}

func runEndSessions(_ context.Context, r *request) (bson.D, error) {
	list, _ := value.RawField(r.raw, "endSessions")
	if list.Type != bson.TypeArray {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "endSessions needs an array")
	}
	values, err := bson.RawArray(list.Value).Values()
	if err != nil {
		return nil, mongoerr.New(22, "Invalid BSON: %v", err)
	}
	for _, v := range values {
		r.srv.sessions.drop(bson.Raw(v.Value))
	}
	return bson.D{}, nil
}

func runKillAllSessions(_ context.Context, r *request) (bson.D, error) {
	r.srv.eng.AbortAll()
	r.srv.cursors.killAll()
	return bson.D{}, nil
}

// parseNS splits "db.coll" at the first dot.
func parseNS(s string) (ns engine.NS, err error) {
	db, coll, ok := strings.Cut(s, ".")
	if !ok || db == "" || coll == "" {
		return ns, mongoerr.New(mongoerr.InvalidNamespace, "Invalid namespace specified '%s'", s)
	}
	return engine.NS{DB: db, Coll: coll}, nil
}
