// Command sluice-emulator serves an embedded MongoDB, Service Bus and Blob storage to programs in
// any language, and prints their addresses as KEY=VALUE. It serves until it is stopped (Ctrl-C or
// SIGTERM).
//
// Exit codes: 0 when it was stopped, 1 when a server failed, 2 when the command line is wrong or a
// port is in use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/control"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(serve(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage is a command line that cannot work.
var errUsage = errors.New("--help lists the flags")

// serve runs the program. It prints what was asked for to stdout and problems to stderr, and
// returns the exit code.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := run(ctx, args, stdout, stderr)
	_, taken := errors.AsType[*emulator.PortError](err)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case taken || errors.Is(err, errUsage) || errors.Is(err, mongo.ErrSnapshot):
		fmt.Fprintln(stderr, "sluice-emulator:", err)
		return 2
	default:
		fmt.Fprintln(stderr, "sluice-emulator:", err)
		return 1
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, controlPort, ca, err := parse(args, stdout, stderr)
	if err != nil {
		return err
	}
	s, err := emulator.New(ctx, o)
	if errors.Is(err, mongo.ErrSnapshot) {
		return fmt.Errorf("--snapshot: %w: remove the file to begin with nothing", err)
	} else if err != nil {
		return err
	}
	settings := s.Settings()
	if ca != "" {
		if err := os.WriteFile(ca, s.CA(), 0o644); err != nil { //nolint:gosec // clients that trust it read it
			return errors.Join(fmt.Errorf("--tls: write the certificate: %w", err), s.Close())
		}
		settings = append(settings, "SERVICE_BUS_CA="+ca)
	}
	l, err := emulator.Listen(ctx, o.Host, controlPort, 0)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	_, _ = fmt.Fprintf(stdout, "%s\nEMULATOR_CONTROL=http://%s\n", strings.Join(settings, "\n"), o.Reached(l)) // the reader may have gone
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error { return listen(ctx, l, control.Handler(s)) })
	return group.Wait()
}

// parse reads the command line, and the file that it names.
func parse(args []string, stdout, stderr io.Writer) (o emulator.Options, controlPort int, ca string, err error) {
	var ports, config, version string
	var verbose bool
	fs := flag.NewFlagSet("sluice-emulator", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&ports, "ports", "standard", "`list` of ports, such as mongodb=27017,servicebus=5672,admin=5300,tls=5671,443,blob=10000,\nor \"standard\", which is those but 443, or \"free\"; a server that is not named takes a free port")
	fs.StringVar(&o.Host, "host", "127.0.0.1", "`address` to listen on; 0.0.0.0 is every address of the machine, for everybody who reaches it")
	fs.StringVar(&o.Advertise, "advertise", "", "`host` by which clients reach the servers, where that is another one: a container's name")
	fs.IntVar(&controlPort, "control", 0, "`port` on which servers are harmed over HTTP; 0: a free one. GET / lists how")
	fs.StringVar(&config, "config", "", "`file` of queues, topics, subscriptions and rules, in the schema of the official emulator's Config.json;\nwithout it, topic \""+emulator.Topic+"\" with subscription \""+emulator.Subscription+"\", which requires sessions")
	fs.StringVar(&o.Snapshot, "snapshot", "", "`file` that keeps MongoDB's data and oplog over a restart")
	fs.StringVar(&version, "mongodb-version", "8.0", "`version` of MongoDB to be like: 4.4, 5.0, 6.0, 7.0 or 8.0")
	fs.StringVar(&ca, "tls", "", "`file` to write a CA's certificate to; Service Bus and its administration are then served behind TLS too, by a certificate\nof it, for clients that insist on that: NODE_EXTRA_CA_CERTS=file for JavaScript's, connection_verify=file for Python's")
	fs.DurationVar(&o.Latency, "latency", 0, "simulated round trip to every server, such as 2ms")
	fs.BoolVar(&verbose, "verbose", false, "log what the servers do to standard error")
	fs.Usage = func() {}
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(stdout, "sluice-emulator serves MongoDB, Service Bus and Blob storage, and prints where.\nFlags:")
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return o, 0, "", err
	} else if err != nil {
		return o, 0, "", fmt.Errorf("%w: %w", err, errUsage)
	}
	var problems []error
	if fs.NArg() > 0 {
		problems = append(problems, fmt.Errorf("%q is no flag", fs.Arg(0)))
	}
	if ports != "free" {
		if o.Ports, err = emulator.ParsePorts(ports); err != nil {
			problems = append(problems, fmt.Errorf("--ports %w", err))
		}
	}
	if o.MongoVersion, err = mongo.ParseVersion(version); err != nil {
		problems = append(problems, fmt.Errorf("--mongodb-version %w", err))
	}
	o.TLS = ca != ""
	if o.Latency < 0 {
		problems = append(problems, fmt.Errorf("--latency %s: a round trip takes no less than nothing", o.Latency))
	}
	if config != "" {
		if o.ServiceBus, err = entities(config); err != nil {
			problems = append(problems, fmt.Errorf("--config %s: %w", config, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return o, 0, "", fmt.Errorf("%w\n%w", err, errUsage)
	}
	level := slog.LevelError // what a client would otherwise wait for without effect
	if verbose {
		level = slog.LevelDebug
	}
	o.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	return o, controlPort, ca, nil
}

func entities(path string) (*servicebus.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err // it names the file
	}
	c, err := servicebus.ParseConfig(text)
	return &c, err
}

// listen serves h until ctx ends.
func listen(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve control: %w", err)
	}
	return nil
}
