// Package source is a user's collection, in a MongoDB of the user, that a run follows.
//
// Guaranteed: the package only reads: it sends hello, lists the collection, opens a change stream
// and finds documents by their _id. A setting that cannot work is a [*flags.UsageError] that gives
// the remedy, and never contains a password.
package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

const (
	// answer is how long the user's MongoDB may take to be found; a
	// serverSelectionTimeoutMS in the URI takes precedence.
	answer = 10 * time.Second
	// diagnosis is how long one host may take to say why.
	diagnosis = 2 * time.Second
	// farewell is how long the end of the connections may take: the run ends within ten seconds of
	// Ctrl-C, whether MongoDB answers or not.
	farewell = 500 * time.Millisecond
)

// Source is the collection, found and fit to be followed.
type Source struct {
	Collection *mongo.Collection
	// From is the first whole second after the collection was found. Nothing that happened to the
	// collection before the run is behind it, and all who read the change stream from there see the
	// same changes.
	From time.Time

	client     *mongo.Client
	operations []string // kinds of change that the producer publishes
	changes    changes
}

// hello holds what is needed of the server's response to hello.
type hello struct {
	SetName       string         `bson:"setName"`
	Message       string         `bson:"msg"` // isdbgrid: a router of a sharded cluster
	OperationTime bson.Timestamp `bson:"operationTime"`
	LocalTime     time.Time      `bson:"localTime"`
}

func (h hello) hasChangeStreams() bool { return h.SetName != "" || h.Message == "isdbgrid" }

// Open finds the collection; the caller must call [Source.Close]. write means that the run will
// insert events of its own: then the collection must be empty, since the read model is compared
// with everything in it.
func Open(ctx context.Context, f flags.Follow, write bool) (_ *Source, err error) {
	if err := settings.CheckMongoURI(emulator.EnvMongo, f.URI); err != nil {
		return nil, usage("%v", err)
	}
	client, err := mongo.Connect(options.Client().SetServerSelectionTimeout(answer).ApplyURI(f.URI).SetAppName("sluice-local"))
	if err != nil {
		return nil, usage("%s: the driver refuses it; its host names, its options or its DNS record may be wrong", emulator.EnvMongo)
	}
	s := &Source{Collection: client.Database(f.Database).Collection(f.Collection), client: client, operations: f.Operations()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	var h hello
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		return nil, unreachable(ctx, f.URI, err)
	}
	if !h.hasChangeStreams() {
		return nil, usage("%s: %s", emulator.EnvMongo, noReplicaSet)
	}
	if h.OperationTime.T == 0 {
		return nil, usage("%s: the server returns no operation time, at which a change stream begins: MongoDB 4.2 or later does", emulator.EnvMongo)
	}
	s.From = time.Unix(int64(h.OperationTime.T)+1, 0)
	if err := s.find(ctx, f); err != nil {
		return nil, err
	}
	if write {
		return s, s.requireEmpty(ctx)
	}
	return s, s.tryStream(ctx)
}

// AwaitFrom waits until it is From by the server's clock: what is written from then on is followed.
func (s *Source) AwaitFrom(ctx context.Context) error {
	var h hello
	if err := s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h); err != nil {
		return fmt.Errorf("ask %s for its time: %w", emulator.EnvMongo, err)
	}
	return retry.Sleep(ctx, s.From.Sub(h.LocalTime))
}

const noReplicaSet = "the server is no replica set, and only a replica set has change streams: " +
	"start it with --replSet rs0 and run rs.initiate() once; a single node is enough"

// unreachable describes why no server was found, as far as the hosts reveal it.
func unreachable(ctx context.Context, uri string, err error) error {
	if _, none := errors.AsType[topology.ServerSelectionError](err); !none {
		return usage("%s: MongoDB refuses: %v", emulator.EnvMongo, err)
	}
	hosts := options.Client().ApplyURI(uri).Hosts
	for _, host := range hosts {
		switch h, err := ask(ctx, host); {
		case err != nil:
		case !h.hasChangeStreams():
			return usage("%s: %s: %s", emulator.EnvMongo, host, noReplicaSet)
		case usesTLS(uri):
			return usage("%s: %s answers without TLS, and the URI asks for it: take tls=true out, or name a server that has it", emulator.EnvMongo, host)
		default:
			return usage("%s: %s answers as a member of the replica set %q, and no primary of the set that the URI names can be reached: "+
				"check replicaSet=, and that this machine can resolve and reach every host of rs.conf(); "+
				"directConnection=true stays with the host that is named", emulator.EnvMongo, host, h.SetName)
		}
	}
	says, todo := checkup.ExplainMongo(err, emulator.EnvMongo)
	return usage("%s: no MongoDB answers at %s: %s. To fix it: %s", emulator.EnvMongo, strings.Join(hosts, ", "), says, todo)
}

// usesTLS reports whether the URI asks for TLS.
func usesTLS(uri string) bool { return options.Client().ApplyURI(uri).TLSConfig != nil }

// ask sends hello to one host alone, without signing in.
func ask(ctx context.Context, host string) (h hello, err error) {
	client, err := mongo.Connect(options.Client().SetHosts([]string{host}).SetDirect(true).SetServerSelectionTimeout(diagnosis))
	if err != nil {
		return h, err
	}
	defer func() { _ = mongodb.Disconnect(ctx, client, diagnosis) }() // the reply is already known
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	return h, err
}

// find checks whether the collection exists and has change streams.
func (s *Source) find(ctx context.Context, f flags.Follow) error {
	there, err := s.Collection.Database().ListCollectionSpecifications(ctx, bson.D{}, options.ListCollections().SetNameOnly(true))
	if err != nil {
		return refused("list the collections of "+f.Database, err)
	}
	var names []string
	for _, c := range there {
		if c.Name == f.Collection && c.Type != "collection" {
			return usage("MONGODB_COLLECTION: %s.%s is a %s, which has no change stream: name a collection", f.Database, f.Collection, c.Type)
		}
		names = append(names, c.Name)
	}
	if slices.Contains(names, f.Collection) {
		return nil
	}
	create := fmt.Sprintf("or create it: db.createCollection(%q)", f.Collection)
	if len(names) == 0 {
		return usage("MONGODB_COLLECTION: there is no %s.%s: the database %s has no collections at all; check MONGODB_DATABASE, %s", f.Database, f.Collection, f.Database, create)
	}
	slices.Sort(names)
	const shown = 10
	more := ""
	if len(names) > shown {
		names, more = names[:shown], ", …"
	}
	return usage("MONGODB_COLLECTION: there is no %s.%s: the database has %s%s; name one of them, %s", f.Database, f.Collection, strings.Join(names, ", "), more, create)
}

func (s *Source) requireEmpty(ctx context.Context) error {
	switch err := s.Collection.FindOne(ctx, bson.D{}).Err(); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil
	case err != nil:
		return refused("read "+s.name(), err)
	}
	return usage("--write-load: %s has documents, and the load must have a collection to itself, since the read model is compared with everything "+
		"in it: name an empty one", s.name())
}

// tryStream opens a change stream, so that a right that is missing is found before anything is
// started.
func (s *Source) tryStream(ctx context.Context) error {
	stream, err := s.open(ctx, nil)
	if err != nil {
		return refused("open a change stream on "+s.name(), err)
	}
	return stream.Close(ctx)
}

// Close ends the connections.
func (s *Source) Close(ctx context.Context) error {
	if err := mongodb.Disconnect(ctx, s.client, farewell); err != nil {
		return fmt.Errorf("disconnect from %s: %w", emulator.EnvMongo, err)
	}
	return nil
}

func (s *Source) name() string { return s.Collection.Database().Name() + "." + s.Collection.Name() }

func refused(what string, err error) error {
	if mongodb.HasCode(err, mongodb.Unauthorized) {
		return usage("%s: its user may not %s: give the user the actions find, changeStream and listCollections on it; "+
			"the role read on the database has all three", emulator.EnvMongo, what)
	}
	return usage("%s: cannot %s: %s", emulator.EnvMongo, what, concise(err))
}

// concise returns the error in words that say what is wrong, without the command that the server
// repeats in it.
func concise(err error) string {
	if _, none := errors.AsType[topology.ServerSelectionError](err); none {
		says, todo := checkup.ExplainMongo(err, emulator.EnvMongo)
		return says + "; " + todo
	}
	text, _, _ := strings.Cut(err.Error(), " to execute command ")
	return text
}

func usage(format string, args ...any) error {
	return &flags.UsageError{Problems: []string{fmt.Sprintf(format, args...)}}
}
