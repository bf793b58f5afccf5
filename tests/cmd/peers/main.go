// Command peers measures Sluice beside what users would pick instead, on one real MongoDB and one
// embedded Service Bus, and writes the results as Markdown tables.
//
//	peers -programs FOLDER -peers FOLDER [-only NAME,…] [-kinds KIND,…] [-events N]
//
// MONGODB_URI is the MongoDB, whose databases shop and readmodel are dropped. The folder of programs
// has producer and projector; that of peers has the sources, with what their lock files name
// installed. Each measurement has new entities, a new checkpoint and empty collections, and every
// process that it started has ended when it returns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// measurement is one row group of the tables.
type measurement struct {
	name string
	of   func(context.Context, *world, peer) ([]result, error)
	does func(peer) bool // whether the peer has the side that is measured
}

func publishes(p peer) bool { return len(p.publisher) > 0 }
func consumes(p peer) bool  { return len(p.consumer) > 0 }

// measurements returns all kinds, in the order of the tables.
func measurements(events int) []measurement {
	return []measurement{
		{"hot", func(ctx context.Context, w *world, p peer) ([]result, error) {
			return publishBacklog(ctx, w, p, events, 100)
		}, publishes},
		{"own", func(ctx context.Context, w *world, p peer) ([]result, error) {
			return publishBacklog(ctx, w, p, events, events)
		}, publishes},
		{"rate", publishRate, publishes},
		{"kill", func(ctx context.Context, w *world, p peer) ([]result, error) {
			return publishKilled(ctx, w, p, events/2)
		}, publishes},
		{"failover", publishFailover, publishes},
		{"consume", func(ctx context.Context, w *world, p peer) ([]result, error) {
			return consumeBacklog(ctx, w, p, events/4, 100)
		}, consumes},
		{"consume-kill", func(ctx context.Context, w *world, p peer) ([]result, error) {
			return consumeKilled(ctx, w, p, events/4, 100)
		}, consumes},
		{"consume-poison", consumePoison, consumes},
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	programs := flags.String("programs", "bin", "`folder` of producer and projector")
	sources := flags.String("peers", "tests/bench/peers", "`folder` of the peers")
	only := flags.String("only", "", "measure these `peers` alone")
	kinds := flags.String("kinds", "", "take these `measurements` alone")
	events := flags.Int("events", 40_000, "`number` of events of a producer's backlog; a consumer's has a quarter")
	if err := flags.Parse(args); err != nil {
		return err
	}
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		return errors.New("MONGODB_URI is not set: run this command by way of realmongo")
	}
	peers, missing := find(*programs, *sources)
	for _, m := range missing {
		fmt.Fprintln(os.Stderr, "peers:", m)
	}
	machine, err := describe(ctx, uri)
	if err != nil {
		return err
	}
	fmt.Println(machine)
	var failed []error
	for _, m := range measurements(*events) {
		if *kinds != "" && !slices.Contains(strings.Split(*kinds, ","), m.name) {
			continue
		}
		var columns []column
		for _, p := range peers {
			if !m.does(p) || *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
				continue
			}
			c, err := measure(ctx, uri, m, p)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s of %s: %w", m.name, p.name, err))
				fmt.Fprintln(os.Stderr, "peers:", failed[len(failed)-1])
				if ctx.Err() != nil {
					return errors.Join(failed...)
				}
				continue
			}
			columns = append(columns, c)
		}
		if len(columns) > 0 {
			fmt.Printf("\n%s\n", table(m.name, columns))
		}
	}
	return errors.Join(failed...)
}

// measure returns one column of a table: a measurement of a peer, on a world of its own.
func measure(ctx context.Context, uri string, m measurement, p peer) (_ column, err error) {
	before := loadAverage()
	w, err := newWorld(ctx, uri)
	if err != nil {
		return column{}, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	results, err := m.of(ctx, w, p)
	if err != nil {
		return column{}, err
	}
	load := fmt.Sprintf("%s, %s", before, loadAverage())
	fmt.Fprintf(os.Stderr, "%s of %s (load %s):", m.name, p.name, load)
	for _, r := range results {
		fmt.Fprintf(os.Stderr, " %s: %s;", r.name, r.text())
	}
	fmt.Fprintln(os.Stderr)
	return column{peer: p.name, load: load, results: results}, nil
}
