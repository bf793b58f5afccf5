package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
)

// orphanGrain is how often a program started by `go run` looks whether that is still there.
const orphanGrain = 500 * time.Millisecond

// Lifetime is the context of a whole run. stop ends with the first signal: it ends a run at once when atOnce is set, else
// the next signal does. It also ends when `go run`, which started this program, is gone: `go run` does not pass SIGTERM
// on, and nothing must be left behind.
func Lifetime(stop context.Context, atOnce bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan os.Signal, 1)
	parent := os.Getppid()
	orphaned := time.NewTicker(orphanGrain)
	byGo := startedByGo(parent)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer orphaned.Stop()
		defer signal.Stop(second)
		first := stop.Done()
		for {
			select {
			case <-ctx.Done():
				return
			case <-first:
				if atOnce {
					cancel()
					return
				}
				first = nil
				signal.Notify(second, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			case <-second:
				cancel()
			case <-orphaned.C:
				if byGo && os.Getppid() != parent {
					cancel()
				}
			}
		}
	})
	return ctx, func() {
		cancel()
		watcher.Wait()
	}
}

func startedByGo(parent int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	return err == nil && strings.TrimSpace(string(name)) == "go"
}

// Serve is `--stack-only`: it prints the settings and serves until ctx ends.
func Serve(ctx context.Context, o flags.Options, w io.Writer) error {
	s, err := Open(ctx, o)
	if err != nil {
		return err
	}
	env := s.Env()
	if s.Route.Queue != "" {
		env = append(env, "SERVICE_BUS_QUEUE="+s.Route.Queue)
	} else {
		env = append(env, "SERVICE_BUS_TOPIC="+s.Route.Topic, "SERVICE_BUS_SUBSCRIPTION="+s.Route.Subscription)
	}
	env = append(env, "SERVICE_BUS_ADMINISTRATION=http://"+s.Management())
	_, _ = fmt.Fprintln(w, strings.Join(env, "\n")) // whoever reads may have gone; the servers are wanted all the same
	return s.Run(ctx)
}
