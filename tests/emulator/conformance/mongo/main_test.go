package mongo_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator/conformance/internal/mongod"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a server on a TCP port with one client; both end with the test.
type fixture struct {
	srv    *mongo.Server // nil if the server is a real one
	uri    string
	client *driver.Client
}

// serve starts the embedded server, or takes the real one of [mongod.URI]; what only the embedded
// one can do is skipped there.
func serve(t testing.TB, opts mongo.Options, more ...func(*options.ClientOptions)) *fixture {
	t.Helper()
	if mongod.URI() != "" {
		if opts != (mongo.Options{}) {
			t.Skip("only the embedded MongoDB has such an option")
		}
		f := &fixture{uri: mongod.URI()}
		f.client = f.connect(t, more...)
		mongod.Empty(t, f.client)
		return f
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fixture{srv: mongo.New(opts)}
	f.uri = f.srv.URI(l.Addr().String())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving errgroup.Group
	serving.Go(func() error { return f.srv.Run(ctx, l) })
	t.Cleanup(func() {
		cancel()
		require.NoError(t, serving.Wait())
	})
	f.client = f.connect(t, more...)
	return f
}

func (f *fixture) connect(t testing.TB, more ...func(*options.ClientOptions)) *driver.Client {
	t.Helper()
	o := options.Client().ApplyURI(f.uri).SetTimeout(20 * time.Second).SetHeartbeatInterval(soonAgain)
	for _, m := range more {
		m(o)
	}
	c, err := driver.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.WithoutCancel(t.Context()))) })
	return c
}

// connectWithout returns a client without a time-out of its own, which would be the maxTimeMS of
// its commands.
func (f *fixture) connectWithout(t testing.TB) *driver.Client {
	t.Helper()
	return f.connect(t, func(o *options.ClientOptions) { o.Timeout = nil })
}

// soonAgain is how long a hello waits for news, and with it the driver: after a refusal that the
// server made up it waits for the next answer, and sometimes its Disconnect does not notice that a
// hello has just begun. The driver's default is ten seconds.
const soonAgain = 500 * time.Millisecond

// embedded returns the server in this process, without which the test is skipped.
func (f *fixture) embedded(t testing.TB) *mongo.Server {
	t.Helper()
	if f.srv == nil {
		t.Skip("only the embedded MongoDB can be made to do this")
	}
	return f.srv
}

// since reports whether the server is of a version or later. The embedded one is as late as any.
func (f *fixture) since(t testing.TB, version ...int32) bool {
	t.Helper()
	return f.srv != nil || slices.Compare(f.version(t), version) >= 0
}

func (f *fixture) version(t testing.TB) (is []int32) {
	t.Helper()
	for _, n := range field(t, f.command(t, "admin", d("buildInfo", 1)), "versionArray").(bson.A) {
		is = append(is, n.(int32))
	}
	return is
}

// like starts an embedded server that acts as a version. With a real server, the test is skipped
// unless the server is of that version, except for the last number.
func like(t testing.TB, version [3]int32) *fixture {
	t.Helper()
	if mongod.URI() == "" {
		return serve(t, mongo.Options{Version: version})
	}
	f := serve(t, mongo.Options{})
	if is := f.version(t); !slices.Equal(is[:2], version[:2]) {
		t.Skipf("the server is of version %v", is)
	}
	return f
}

// requires skips what earlier servers do otherwise or not at all.
func (f *fixture) requires(t testing.TB, major, minor int32) {
	t.Helper()
	if !f.since(t, major, minor) {
		t.Skipf("before MongoDB %d.%d this is otherwise", major, minor)
	}
}

func (f *fixture) coll() *driver.Collection { return f.client.Database("db").Collection("c") }

func (f *fixture) command(t testing.TB, db string, cmd bson.D) bson.D {
	t.Helper()
	var out bson.D
	require.NoError(t, f.client.Database(db).RunCommand(t.Context(), cmd).Decode(&out))
	return out
}

func (f *fixture) failCommand(t testing.TB, mode any, data bson.D) {
	t.Helper()
	f.command(t, "admin", bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data}})
}

// next reads one event, failing the test when none comes.
func next(t testing.TB, cs *driver.ChangeStream) bson.M {
	t.Helper()
	require.True(t, cs.Next(t.Context()), "no event: %v", cs.Err())
	var m bson.M
	require.NoError(t, cs.Decode(&m))
	return m
}

func d(pairs ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return out
}

// closing ends a stream with the test; a stream that has ended before is fine.
func closing(t testing.TB, cs *driver.ChangeStream) {
	t.Helper()
	t.Cleanup(func() { _ = cs.Close(context.WithoutCancel(t.Context())) })
}
