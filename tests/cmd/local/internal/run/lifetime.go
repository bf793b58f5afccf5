package run

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// orphanGrain is how often a program that `go run` or make has started checks that it is still
// there.
const orphanGrain = 500 * time.Millisecond

// Lifetime returns the context of a whole run. stop ends with the first signal: it ends a run at
// once when atOnce is set, else the next signal does. It also ends when `go run` or make, which
// started this program, is gone: they do not pass SIGTERM on, and nothing must be left behind.
func Lifetime(stop context.Context, atOnce bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan os.Signal, 1)
	parent := os.Getppid()
	orphaned := time.NewTicker(orphanGrain)
	depends := startedByGo(parent) || os.Getenv("MAKELEVEL") != ""
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
				if depends && os.Getppid() != parent {
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
