//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
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
)

// theirs is a MongoDB of somebody's own, behind a tap that notes every command; our own client goes past it.
type theirs struct {
	uri    string
	client *driver.Client

	mu       sync.Mutex // guards what follows
	commands map[string]int
	output   bool // a pipeline had a stage that writes
}

func newTheirs(t *testing.T) *theirs {
	t.Helper()
	var config net.ListenConfig
	tap, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := mongo.New(mongo.Options{Host: tap.Addr().String()})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	th := &theirs{uri: mongo.URI(tap.Addr().String()), commands: map[string]int{}}
	running.Go(func() { _ = server.Run(ctx, listener) }) // what it serves is looked at
	running.Go(func() { th.serve(ctx, tap, listener.Addr().String(), &running) })
	th.client, err = driver.Connect(options.Client().ApplyURI("mongodb://" + listener.Addr().String() + "/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, th.client.Disconnect(context.WithoutCancel(t.Context())))
		cancel()
		_ = tap.Close()
		running.Wait()
	})
	return th
}

// serve hands connections on to addr, and looks at every request.
func (th *theirs) serve(ctx context.Context, l net.Listener, addr string, running *sync.WaitGroup) {
	for {
		in, err := l.Accept()
		if err != nil {
			return // closed: the test is over
		}
		out, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			_ = in.Close()
			return
		}
		stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
		running.Go(func() {
			_, _ = io.Copy(in, out) // an end of either kind is the end of both
			_, _ = in.Close(), out.Close()
		})
		running.Go(func() {
			defer stop()
			_ = th.note(out, in)
			_, _ = in.Close(), out.Close()
		})
	}
}

// note copies messages and notes their commands: the first field of a body (OP_MSG, kind 0), or of a query.
func (th *theirs) note(out io.Writer, in io.Reader) error {
	const opQuery, opMsg = 2004, 2013
	for {
		header := make([]byte, 16)
		if _, err := io.ReadFull(in, header); err != nil {
			return err
		}
		message := make([]byte, binary.LittleEndian.Uint32(header)-16)
		if _, err := io.ReadFull(in, message); err != nil {
			return err
		}
		name := "unknown"
		switch binary.LittleEndian.Uint32(header[12:]) {
		case opQuery:
			name = "query " + string(message[4:4+bytes.IndexByte(message[4:], 0)])
		case opMsg:
			if body := message[5:]; message[4] == 0 {
				name = string(body[5 : 5+bytes.IndexByte(body[5:], 0)])
			}
		}
		th.mu.Lock()
		th.commands[name]++
		th.output = th.output || bytes.Contains(message, []byte("$out\x00")) || bytes.Contains(message, []byte("$merge\x00"))
		th.mu.Unlock()
		if _, err := out.Write(append(header, message...)); err != nil {
			return err
		}
	}
}

// names are the commands that came through the tap.
func (th *theirs) names() (names []string) {
	th.mu.Lock()
	defer th.mu.Unlock()
	for name := range th.commands {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (th *theirs) env(collection string) []string {
	return []string{"MONGODB_URI=" + th.uri, "MONGODB_DATABASE=app", "MONGODB_COLLECTION=" + collection}
}

// reading are the commands that change nothing.
var reading = []string{
	"aggregate", "buildInfo", "endSessions", "find", "getMore", "hello", "killCursors", "listCollections", "ping", "query admin.$cmd",
}

// follows shows what somebody else writes, and writes nothing there itself.
func follows(t *testing.T, c command) {
	th := newTheirs(t)
	orders := th.client.Database("app").Collection("orders")
	_, err := orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "before"}})
	require.NoError(t, err)

	cmd := c.command(t, "--follow", "--producers=1")
	cmd.Env = append(cmd.Env, th.env("orders")...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var text strings.Builder
	for line := newLines(out); !strings.Contains(text.String(), "write to your collection"); {
		text.WriteString(line(t) + "\n")
	}
	for i := range 50 {
		_, err := orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "aggregateId", Value: "same"}})
		require.NoError(t, err)
	}
	_, err = orders.UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "paid", Value: true}}}})
	require.NoError(t, err)
	_, err = orders.DeleteMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$lt", Value: 10}}}})
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	text.Write(rest)
	require.NoError(t, cmd.Wait(), text.String())
	require.Contains(t, text.String(), "EXACTLY RIGHT: 51 of 51 documents")
	events := regexp.MustCompile(`(\d+) seen, (\d+) published, (\d+) applied`).FindStringSubmatch(text.String())
	require.Len(t, events, 4, text.String())
	// 50 inserts, 51 updates, 10 deletes; and the insert before, where it came in the second in which the run began.
	require.Contains(t, []string{"111", "112"}, events[1])
	require.Equal(t, []string{events[1], events[1]}, events[2:], "what was seen, published and applied is the same")
	requireNothingLeft(t, cmd)

	for _, name := range th.names() {
		require.Contains(t, reading, name, "%v", th.names())
	}
	require.Contains(t, th.names(), "getMore", "the tap sees what the services do")
	require.False(t, th.output)
}

// writesWhenTold inserts events into somebody's collection, if and only if it is empty; and the tap would see a write.
func writesWhenTold(t *testing.T, c command) {
	th := newTheirs(t)
	require.NoError(t, th.client.Database("app").CreateCollection(t.Context(), "load"))
	run := func() (int, string) {
		cmd := c.command(t, "--follow", "--write-load", "--events=200", "--rate=0", "--quiet")
		cmd.Env = append(cmd.Env, th.env("load")...)
		out, err := cmd.CombinedOutput()
		if _, exited := errors.AsType[*exec.ExitError](err); !exited {
			require.NoError(t, err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	code, out := run()
	require.Zero(t, code, out)
	require.Contains(t, out, "EXACTLY RIGHT")
	require.Contains(t, th.names(), "insert")

	code, out = run()
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "--write-load: app.load has documents")
}

// theirsIsUnfit says what is wrong with somebody's MongoDB, and what to do, before anything is started.
func theirsIsUnfit(t *testing.T, c command) {
	th := newTheirs(t)
	for _, name := range []string{"orders", "customers"} {
		require.NoError(t, th.client.Database("app").CreateCollection(t.Context(), name))
	}
	for name, test := range map[string]struct{ uri, database, collection, says string }{
		"no URI":         {"postgres://user:secret@db", "app", "orders", "MONGODB_URI: is not a MongoDB connection string"},
		"nobody there":   {"mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300", "app", "orders", "no MongoDB answers at 127.0.0.1:1"},
		"another set":    {strings.Replace(th.uri, "rs0", "rs9&serverSelectionTimeoutMS=300", 1), "app", "orders", `answers as a member of the replica set "rs0"`},
		"no replica set": {standalone(t), "app", "orders", "the server is no replica set"},
		"no replica set, although the URI names one": {
			standalone(t) + "?replicaSet=rs0&serverSelectionTimeoutMS=300", "app", "orders", "start it with --replSet rs0 and run rs.initiate()",
		},
		"no collection": {th.uri, "app", "order", "there is no app.order: the database has customers, orders"},
		"no database":   {th.uri, "App", "orders", "the database App has no collections at all; check MONGODB_DATABASE"},
		"no name":       {th.uri, "app", "", "--follow needs the environment variable MONGODB_COLLECTION"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := c.command(t, "--follow")
			cmd.Env = append(cmd.Env, "MONGODB_URI="+test.uri, "MONGODB_DATABASE="+test.database, "MONGODB_COLLECTION="+test.collection)
			out, _ := cmd.CombinedOutput() // the exit code says it
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), string(out))
			require.Contains(t, string(out), test.says)
			require.NotContains(t, string(out), "secret")
		})
	}
}

// standalone answers hello as a mongod without a replica set does, and nothing else; it is the URI.
func standalone(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { _ = answerHello(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return "mongodb://" + l.Addr().String() + "/"
}

func answerHello(conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	const opReply, opQuery, opMsg = 1, 2004, 2013
	document, err := bson.Marshal(bson.D{
		{Key: "ok", Value: 1},
		{Key: "helloOk", Value: true},
		{Key: "isWritablePrimary", Value: true},
		{Key: "ismaster", Value: true},
		{Key: "minWireVersion", Value: 0},
		{Key: "maxWireVersion", Value: 25},
		{Key: "maxBsonObjectSize", Value: 16777216},
		{Key: "maxMessageSizeBytes", Value: 48000000},
		{Key: "maxWriteBatchSize", Value: 100000},
	})
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
