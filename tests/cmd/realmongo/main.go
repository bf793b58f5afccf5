// Command realmongo runs a command with a real MongoDB: a replica set of one new, empty member.
//
//	realmongo [-stack] [-oplog MB] MONGOD COMMAND [ARGUMENT…]
//
// MONGOD is the program, or the connection string of an existing replica set on which every
// database may be dropped. The command finds the server in MONGODB_URI and CONFORMANCE_MONGODB_URI;
// with -stack, embedded Service Bus and Blob storage are in the services' other settings. realmongo
// ends with the command's exit code, or with 2 if the command could not be run; MongoDB's log is
// shown if it does not start.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "realmongo:", err)
	}
	os.Exit(code)
}

// usualOplog is the size of the oplog in MB: the least to which one can be resized.
const usualOplog = 990

func run(ctx context.Context, args []string) (code int, err error) {
	flags := flag.NewFlagSet("realmongo", flag.ContinueOnError)
	withStack := flags.Bool("stack", false, "with embedded Service Bus and Blob storage")
	oplog := flags.Int("oplog", usualOplog, "size of the oplog in `MB`")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if args = flags.Args(); len(args) < 2 {
		return 2, errors.New("usage: realmongo [-stack] [-oplog MB] MONGOD COMMAND [ARGUMENT…]")
	}
	uri := args[0]
	if !strings.HasPrefix(uri, "mongodb://") && !strings.HasPrefix(uri, "mongodb+srv://") {
		var server *server
		if server, err = start(ctx, args[0], *oplog); err != nil {
			return 2, err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		uri = server.uri
	}
	env := os.Environ()
	if *withStack {
		var settings []string
		var stop func() error
		if settings, stop, err = serve(ctx); err != nil {
			return 2, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		env = append(env, settings...)
	}
	cmd := exec.CommandContext(ctx, args[1], args[2:]...) //nolint:gosec // the caller's own command
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(env, "MONGODB_URI="+uri, stack.EnvTheirs+"="+uri)
	err = cmd.Run()
	if exited, is := errors.AsType[*exec.ExitError](err); is && exited.Exited() {
		return exited.ExitCode(), nil
	}
	if err != nil { // it could not be started, or was killed
		return 2, err
	}
	return 0, nil
}

// serve runs the embedded servers until stop, and returns the settings that locate them.
func serve(ctx context.Context) (settings []string, stop func() error, err error) {
	servers, err := emulator.New(ctx, emulator.Options{})
	if err != nil {
		return nil, nil, err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- servers.Run(serving) }()
	return servers.Settings(), func() error { end(); return <-served }, nil
}

// server is a mongod in a folder of its own.
type server struct {
	uri    string
	folder string
	kill   context.CancelFunc
	ended  chan error
}

// startTimeout bounds the wait for a writable member.
const startTimeout = time.Minute

func start(ctx context.Context, program string, oplog int) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "sluice-mongod-")
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	s := &server{uri: "mongodb://" + address + "/?replicaSet=rs0", folder: folder, kill: kill, ended: make(chan error, 1)}
	cmd := exec.CommandContext(life, program, "--dbpath", folder, "--bind_ip", "127.0.0.1", "--port", fmt.Sprint(port), //nolint:gosec // the caller's own program
		"--replSet", "rs0", "--setParameter", "enableTestCommands=1", "--wiredTigerCacheSizeGB", "0.5", "--oplogSize", fmt.Sprint(oplog))
	if oplog < usualOplog {
		cmd.Args = append(cmd.Args, "--syncdelay", "1") // seconds: the oplog is kept from the last checkpoint on
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	go func() { s.ended <- cmd.Run() }()
	if err := s.initiate(ctx, address); err != nil {
		err = errors.Join(err, s.stop())
		tail := output.Bytes()
		return nil, fmt.Errorf("start %s: %w\n%s", program, err, tail[max(len(tail)-4096, 0):])
	}
	return s, nil
}

// freePort returns a port that is free at the moment. It is below those that systems assign
// automatically: another program might be given one of these before mongod listens, and would then
// be mistaken for mongod.
func freePort() (port int, err error) {
	for range 100 {
		port = 20_000 + rand.IntN(12_000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// initiate makes the member a replica set, and waits until the member is its primary.
func (s *server) initiate(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + address + "/?directConnection=true"))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	admin := client.Database("admin")
	initiated := make(chan error, 1)
	go func() {
		initiated <- admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: "rs0"}, {Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: address}}}},
		}}}).Err()
	}()
	select {
	case err := <-initiated:
		if err != nil {
			return err
		}
	case err := <-s.ended:
		s.ended <- err
		return fmt.Errorf("it ended: %w", err)
	}
	for {
		var hello struct{ IsWritablePrimary bool }
		if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil || hello.IsWritablePrimary {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it does not lead its set: %w", ctx.Err())
		}
	}
}

// stop kills the server and removes its data.
func (s *server) stop() error {
	s.kill()
	<-s.ended //nolint:errcheck // killed, on purpose
	return os.RemoveAll(s.folder)
}
