package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/serve"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// envProgram makes this test's own program that of a projection, which serves at the address that
// it has as its value.
const envProgram = "SLUICE_CHAOS_PROGRAM"

func serveProgram(addr string) error {
	handler, err := serve.Handler(projection.Timeline{})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// lastPort is the last port that a program was given. Ports are below those that systems use for
// outgoing connections, of which one could take a program's port while the program is dead.
var lastPort atomic.Int64

func init() { lastPort.Store(15_000 + rand.Int64N(10_000)) }

// free returns an address that no program has and that is free.
func free(ctx context.Context) (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", lastPort.Add(1))
		var listener net.Listener
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err == nil {
			return addr, listener.Close()
		}
	}
	return "", err
}

// besideProgram gives a projector a program of its own, at a port that the program's successors use
// too.
func (r *ring) besideProgram(ctx context.Context, name, logs string) (url string, err error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	addr, err := free(ctx)
	if err != nil {
		return "", err
	}
	r.programs = append(r.programs, &child.Slot{
		Name: name, Program: own, LogDir: logs, Env: []string{envProgram + "=" + addr}, OnEvent: func(event string) { r.trace.add("%s", event) },
	})
	return "http://" + addr, nil
}

// TestG1G2G3G5ProgramsThatAreKilled kills programs that are the projection, at any moment of the
// load: that of one projector, both at once, or one together with its projector. Each event takes
// effect once and in order, and none is parked. CHAOS_ROUNDS is the number of rounds.
func TestG1G2G3G5ProgramsThatAreKilled(t *testing.T) {
	t.Parallel()
	rounds := setting(t, "CHAOS_ROUNDS", 6)
	built := programs(t)
	seen := &report{}
	t.Cleanup(func() { t.Logf("%d rounds: %s", rounds, seen.counts()) })
	for n := range 2 { // both receivers
		t.Run(fmt.Sprintf("program-%d", n+1), func(t *testing.T) {
			t.Parallel()
			o := ringOptions{
				name: fmt.Sprintf("program-%d", n+1), seed: uint64(setting(t, "CHAOS_SEED", 1)*100 + n), rate: 60, program: true,
				services: built, times: calm,
			}
			random := rand.New(rand.NewPCG(o.seed, 0x9109))
			r := inRing(t, o, func(ctx context.Context, r *ring) error {
				for n := range rounds {
					if err := r.killPrograms(ctx, random, n%3); err != nil {
						return err
					}
				}
				return nil
			})
			seen.judged(r)
		})
	}
}

// killPrograms kills a program, all of them, or one with its projector, and waits until what was
// committed before is in the read model.
func (r *ring) killPrograms(ctx context.Context, random *rand.Rand, how int) error {
	if _, err := r.ready(ctx); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, time.Duration(random.Int64N(int64(time.Second)))); err != nil {
		return err
	}
	victim := random.IntN(len(r.programs))
	victims := []*child.Slot{r.programs[victim]}
	switch how {
	case 1:
		victims = r.programs
	case 2:
		victims = append(victims, r.projectors[victim].Slot)
	}
	for _, v := range victims {
		instance, err := v.Signal(syscall.SIGKILL)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		r.trace.add("SIGKILL to %s", instance)
	}
	return r.movedOn(ctx)
}
