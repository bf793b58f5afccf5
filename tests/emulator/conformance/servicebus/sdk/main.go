// Command conformance runs the test binaries of the Azure SDK for Go against the embedded
// Service Bus, each test in a process of its own, and prints which passed.
//
// It is run by tests/emulator/scripts/conformance-azservicebus.sh, which makes the binaries.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	dir := flags.String("dir", "", "`folder` of the module's copy; binaries are DIR/NAME.test and run in DIR/FOLDER")
	logs := flags.String("logs", "", "`folder` for the output of what fails")
	only := flags.String("run", ".", "`pattern` of the tests to run")
	limit := flags.Duration("timeout", 100*time.Second, "of one test")
	parallel := flags.Int("parallel", 6, "tests at a time; they mostly wait")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return withNamespaces(ctx, *logs, func(env []string) error {
		r := runner{dir: *dir, logs: *logs, limit: *limit, env: append(os.Environ(), env...)}
		var all []result
		for _, suite := range []suite{{"azservicebus", ".", *parallel}, {"admin", "admin", 1}, {"internal", "internal", 1}} {
			results, err := r.suite(ctx, suite, *only)
			if err != nil {
				return err
			}
			all = append(all, results...)
		}
		return report(os.Stdout, all)
	})
}

// suite is a test binary and the folder it expects to run in.
type suite struct {
	name, folder string
	parallel     int // internal names its queues after the second, and admin pages through all there are
}

type runner struct {
	dir, logs string
	limit     time.Duration
	env       []string
}

// result of one top-level test. Outcome is PASS, FAIL, SKIP or TIME.
type result struct {
	suite, test, outcome string
	failed               []string // failed subtests
	detail               string
	took                 time.Duration
	collided             bool
}

func (r *runner) suite(ctx context.Context, s suite, pattern string) ([]result, error) {
	list := exec.CommandContext(ctx, filepath.Join(r.dir, s.name+".test"), "-test.list", pattern)
	list.Dir, list.Env = filepath.Join(r.dir, s.folder), r.env
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list tests of %s: %w", s.name, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	results := make([]result, len(names))
	var g errgroup.Group
	g.SetLimit(s.parallel)
	for i, name := range names {
		g.Go(func() error {
			results[i] = r.one(ctx, s, name)
			return ctx.Err()
		})
	}
	err = g.Wait()
	for i := range results { // those that named a queue after the same second as another test
		if results[i].collided && ctx.Err() == nil {
			results[i] = r.one(ctx, s, names[i])
		}
	}
	return results, err
}

var (
	failedSubtest = regexp.MustCompile(`(?m)^\s+--- FAIL: (\S+)`)
	firstError    = regexp.MustCompile(`(?s)Error:\s+(.{1,300})`)
	skipped       = regexp.MustCompile(`(?m)^--- SKIP`)
)

func (r *runner) one(ctx context.Context, s suite, name string) result {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	var out bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(r.dir, s.name+".test"), "-test.run", "^"+name+"$", "-test.v")
	c.Dir, c.Env, c.Stdout, c.Stderr = filepath.Join(r.dir, s.folder), r.env, &out, &out
	c.WaitDelay = time.Second
	start := time.Now()
	err := c.Run()
	res := result{suite: s.name, test: name, outcome: "PASS", took: time.Since(start)}
	switch {
	case ctx.Err() != nil:
		res.outcome = "TIME"
	case err != nil:
		res.outcome = "FAIL"
	case skipped.Match(out.Bytes()):
		res.outcome = "SKIP"
	}
	res.collided = err != nil && bytes.Contains(out.Bytes(), []byte("SubCode=40900"))
	if res.outcome == "FAIL" || res.outcome == "TIME" {
		for _, m := range failedSubtest.FindAllStringSubmatch(out.String(), -1) {
			res.failed = append(res.failed, m[1])
		}
		if m := firstError.FindStringSubmatch(out.String()); m != nil {
			res.detail = strings.Join(strings.Fields(m[1]), " ")
		}
		if r.logs != "" {
			if err := os.WriteFile(filepath.Join(r.logs, s.name+"."+name+".log"), out.Bytes(), 0o600); err != nil {
				res.detail += " (log not written: " + err.Error() + ")"
			}
		}
	}
	return res
}

// serve runs f for every listener until stop, and joins all.
func serve(ctx context.Context, stop context.CancelFunc, fs []func(context.Context) error, body func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(fs))
	for i, f := range fs {
		wg.Go(func() {
			if errs[i] = f(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	err := body()
	stop()
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
