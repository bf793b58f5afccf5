//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// theirs is a user's own MongoDB, behind a tap that records every command; the test's own client
// does not go through the tap.
type theirs struct {
	uri    string
	client *driver.Client
	tap    *wire.Proxy

	mu       sync.Mutex // guards what follows
	commands map[string]bool
	output   bool // a pipeline had a stage that writes
}

func newTheirs(t *testing.T) *theirs {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	th := &theirs{commands: map[string]bool{}}
	var server string
	var embedded net.Listener
	var err error
	if stack.Theirs() {
		uri, _ := stack.MongoDB(t, nil)
		server = options.Client().ApplyURI(uri).Hosts[0]
	} else {
		embedded, err = wire.Loopback(ctx, wire.Mongo)
		require.NoError(t, err)
		server = embedded.Addr().String()
	}
	th.tap, err = wire.Listen(ctx, "run", wire.Addrs{Mongo: server}, wire.Loopback, nil, nil)
	require.NoError(t, err)
	th.tap.Arm(wire.NewTrap(th.note))
	th.uri = "mongodb://" + th.tap.Addrs().Mongo + "/?directConnection=true"
	if embedded != nil {
		th.uri = mongo.URI(th.tap.Addrs().Mongo)
		member := mongo.New(mongo.Options{Host: th.tap.Addrs().Mongo})
		running.Go(func() { _ = member.Run(ctx, embedded) }) // the tests check what it serves
	}
	running.Go(func() { _ = th.tap.Run(ctx) })
	th.client, err = driver.Connect(options.Client().ApplyURI("mongodb://" + server + "/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, th.client.Disconnect(context.WithoutCancel(t.Context())))
		cancel()
		running.Wait()
	})
	return th
}

// insert inserts documents that have an _id alone.
func (th *theirs) insert(t *testing.T, collection string, ids ...any) {
	t.Helper()
	for _, id := range ids {
		_, err := th.client.Database("app").Collection(collection).InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
		require.NoError(t, err)
	}
}

// setAway closes every connection of the run and refuses new ones, or serves them again.
func (th *theirs) setAway(away bool) { th.tap.Away(map[bool]wire.Server{true: wire.Mongo}[away]) }

// note records a command, and lets it pass.
func (th *theirs) note(u wire.Unit) bool {
	if u.Reply {
		return false
	}
	name := u.Name
	if name == "" {
		name = fmt.Sprint("operation ", binary.LittleEndian.Uint32(u.Message[12:]))
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	th.commands[name] = true
	th.output = th.output || bytes.Contains(u.Message, []byte("$out\x00")) || bytes.Contains(u.Message, []byte("$merge\x00"))
	return false
}

// names returns the commands that passed the tap.
func (th *theirs) names() []string {
	th.mu.Lock()
	defer th.mu.Unlock()
	return slices.Sorted(maps.Keys(th.commands))
}

func (th *theirs) env(collection string) []string {
	return []string{"MONGODB_URI=" + th.uri, "MONGODB_DATABASE=app", "MONGODB_COLLECTION=" + collection}
}

// reading are the commands that change nothing. The drivers' first hello is an OP_QUERY (2004).
var reading = []string{
	"aggregate", "buildInfo", "endSessions", "find", "getMore", "hello", "killCursors", "listCollections", "ping", "operation 2004",
}

// followed is a run whose output is read as it comes.
type followed struct {
	cmd  *exec.Cmd
	pipe io.Closer // its output
	out  *bufio.Scanner
	text strings.Builder
}

// follow starts a run and waits until it follows.
func (c command) follow(t *testing.T, th *theirs, collection string, args ...string) *followed {
	t.Helper()
	f := watched(t, c.with(th.env(collection)...).command(t, append(args, "--follow")...))
	f.until(t, "write to your collection")
	return f
}

// watched starts a run.
func watched(t *testing.T, cmd *exec.Cmd) *followed {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	return &followed{cmd: cmd, pipe: out, out: bufio.NewScanner(out)}
}

// until reads the run's output up to a line that contains text.
func (f *followed) until(t *testing.T, text string) {
	t.Helper()
	for f.out.Scan() {
		f.text.WriteString(f.out.Text() + "\n")
		if strings.Contains(f.out.Text(), text) {
			return
		}
	}
	t.Fatalf("the output ends before %q:\n%s", text, f.text.String())
}

// end reads the rest of the output, and returns the exit code and all of the output.
func (f *followed) end(t *testing.T) (code int, text string) {
	t.Helper()
	for f.out.Scan() {
		f.text.WriteString(f.out.Text() + "\n")
	}
	_ = f.cmd.Wait() // the code is returned
	requireNothingLeft(t, f.cmd)
	return f.cmd.ProcessState.ExitCode(), f.text.String()
}

// stop ends the run as Ctrl-C does.
func (f *followed) stop(t *testing.T) (code int, text string) {
	t.Helper()
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGINT))
	return f.end(t)
}

// follows shows what another program writes, and writes nothing itself.
func follows(t *testing.T, c command) {
	th := newTheirs(t)
	orders := th.client.Database("app").Collection("orders")
	th.insert(t, "orders", "before")
	f := c.follow(t, th, "orders", "--producers=1")
	for i := range 50 {
		_, err := orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "aggregateId", Value: "same"}})
		require.NoError(t, err)
	}
	_, err := orders.UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "paid", Value: true}}}})
	require.NoError(t, err)
	_, err = orders.DeleteMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$lt", Value: 10}}}})
	require.NoError(t, err)
	code, text := f.stop(t)
	require.Zero(t, code, text)
	require.Contains(t, text, "EXACTLY RIGHT: 51 of 51 documents")
	events := regexp.MustCompile(`(\d+) seen, (\d+) published, (\d+) applied`).FindStringSubmatch(text)
	require.Len(t, events, 4, text)
	require.Equal(t, []string{"111", "111", "111"}, events[1:], "50 inserts, 51 updates and 10 deletes; not the insert before the run")

	for _, name := range th.names() {
		require.Contains(t, reading, name, "%v", th.names())
	}
	require.Contains(t, th.names(), "getMore", "the tap sees what the services do")
	require.False(t, th.output)
}

// followsUntilReplaced: a collection that is renamed onto the followed one stops the producers, and
// with them the run.
func followsUntilReplaced(t *testing.T, c command) {
	th := newTheirs(t)
	th.insert(t, "orders", 0)
	th.insert(t, "other", 0)
	f := c.follow(t, th, "orders")
	rename := bson.D{{Key: "renameCollection", Value: "app.other"}, {Key: "to", Value: "app.orders"}, {Key: "dropTarget", Value: true}}
	require.NoError(t, th.client.Database("admin").RunCommand(t.Context(), rename).Err())
	code, text := f.end(t)
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "app.orders was replaced by another collection")
	require.Regexp(t, `local: producer-\d ends with the same error each time: .*the watched collection was replaced.*ON_COLLECTION_REPLACED=continue`, text)
	require.NotContains(t, text, `"level"`, "records of the log are for machines")
	require.NotRegexp(t, `[0-9A-F]{40}`, text, "a position in the middle of a sentence is shortened")
}

// followsThroughOutages: the user's MongoDB is away for a while, and is away when the run ends.
func followsThroughOutages(t *testing.T, c command) {
	th := newTheirs(t)
	th.insert(t, "orders", 0)
	f := c.follow(t, th, "orders")
	th.insert(t, "orders", 1)
	th.setAway(true)
	f.until(t, "cannot watch app.orders, trying again")
	th.insert(t, "orders", 2)
	th.setAway(false)
	f.until(t, "the change stream of app.orders can be read again")
	f.until(t, "seen 2, published 2, applied 2")
	th.setAway(true)
	f.until(t, "cannot watch app.orders, trying again")
	code, text := f.stop(t)
	require.Equal(t, 1, code, text)
	require.NotContains(t, text, "current topology", "the driver's words")
	require.Contains(t, text, "NOT COMPARED")
	require.Contains(t, text, "The run was given up: the documents could not be compared")
}

// followsWithoutAReader: the reader of the output, such as tee, ends with the same Ctrl-C.
func followsWithoutAReader(t *testing.T, c command) {
	th := newTheirs(t)
	th.insert(t, "orders", 0)
	report := filepath.Join(t.TempDir(), "report.json")
	f := c.follow(t, th, "orders", "--report", report)
	th.insert(t, "orders", 1)
	f.until(t, "applied 1")
	require.NoError(t, f.pipe.Close())
	require.NoError(t, f.cmd.Wait(), "the run ends as if it was interrupted")
	requireNothingLeft(t, f.cmd)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(text), `"aggregates": 1`)
}

// writesOnRequest inserts events into a user's collection only if it is empty; and the tap would
// notice a write.
func writesOnRequest(t *testing.T, c command) {
	th := newTheirs(t)
	require.NoError(t, th.client.Database("app").CreateCollection(t.Context(), "load"))
	c, args := c.with(th.env("load")...), []string{"--follow", "--write-load", "--events=200", "--rate=0", "--quiet"}
	c.right(t, nil, args...)
	require.Contains(t, th.names(), "insert")

	r := c.run(t, args...)
	require.Equal(t, 2, r.code, r.out)
	require.Contains(t, r.out, "--write-load: app.load has documents")
}

// theirsIsUnfit reports what is wrong with a user's MongoDB, and the remedy, before anything is
// started.
func theirsIsUnfit(t *testing.T, c command) {
	th := newTheirs(t)
	for _, name := range []string{"orders", "customers"} {
		require.NoError(t, th.client.Database("app").CreateCollection(t.Context(), name))
	}
	for name, test := range map[string]struct{ uri, database, collection, want string }{
		"no URI":         {"postgres://user:secret@db", "app", "orders", "MONGODB_URI: is not a MongoDB connection string"},
		"no server":      {"mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300", "app", "orders", "no MongoDB answers at 127.0.0.1:1"},
		"another set":    {strings.Replace(th.uri, "rs0", "rs9&serverSelectionTimeoutMS=300", 1), "app", "orders", `answers as a member of the replica set "rs0"`},
		"no replica set": {standalone(t), "app", "orders", "the server is no replica set"},
		"no replica set, although the URI names one": {
			standalone(t) + "?replicaSet=rs0&serverSelectionTimeoutMS=300", "app", "orders", "start it with --replSet rs0 and run rs.initiate()",
		},
		"no collection": {th.uri, "app", "order", `there is no app.order: the database has customers, orders; name one of them, or create it: db.createCollection("order")`},
		"no database":   {th.uri, "App", "orders", "the database App has no collections at all; check MONGODB_DATABASE, or create it"},
		"no name":       {th.uri, "app", "", "--follow needs the environment variable MONGODB_COLLECTION"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.with("MONGODB_URI="+test.uri, "MONGODB_DATABASE="+test.database, "MONGODB_COLLECTION="+test.collection).run(t, "--follow")
			require.Equal(t, 2, r.code, r.out)
			require.Contains(t, r.out, test.want)
			require.NotContains(t, r.out, "secret")
		})
	}
}

// standalone answers hello as a mongod without a replica set does, and nothing else. It returns the
// URI.
func standalone(t *testing.T) string {
	t.Helper()
	return "mongodb://" + netpipe.ServeTCP(t, func(ctx context.Context, l net.Listener) error {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		defer stop()
		var running sync.WaitGroup
		defer running.Wait()
		for {
			conn, err := l.Accept()
			if err != nil {
				return nil // closed: the test has ended
			}
			running.Go(func() { _ = answerHello(conn) }) // until the client disconnects
		}
	}) + "/"
}

func answerHello(conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	const opReply, opQuery, opMsg = 1, 2004, 2013
	var document bson.Raw
	err := bson.UnmarshalExtJSON([]byte(`{
		"ok": 1, "helloOk": true, "isWritablePrimary": true, "ismaster": true, "minWireVersion": 0, "maxWireVersion": 25,
		"maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000, "maxWriteBatchSize": 100000}`), false, &document)
	if err != nil {
		return err
	}
	for {
		header := make([]byte, 16)
		if _, err := io.ReadFull(conn, header); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.LittleEndian.Uint32(header))-16); err != nil {
			return err
		}
		op, body := uint32(opMsg), append(make([]byte, 5), document...) // flags, and the kind of the section
		if binary.LittleEndian.Uint32(header[12:]) == opQuery {
			op, body = opReply, append(make([]byte, 20), document...) // flags, cursor, start, and the number of documents
			body[16] = 1
		}
		reply := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
		reply = append(reply, 0, 0, 0, 0)
		reply = append(reply, header[4:8]...) // in answer to
		reply = binary.LittleEndian.AppendUint32(reply, op)
		if _, err := conn.Write(append(reply, body...)); err != nil {
			return err
		}
	}
}
