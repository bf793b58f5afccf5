package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
)

// settleParked has the operator fix every parked aggregate, beside the projectors: garbage and some
// of the poison are dropped with `parked drop`, and once the projection can apply everything, the
// others are replayed. Sometimes the first commands are killed at any moment, as an operator's
// terminal may be closed; the last one of each kind is not.
func (w *world) settleParked() {
	patients := w.record.Run().Patients()
	for _, s := range patients {
		if (s.Dropped || s.Garbage != nil) && !w.drop(s.Aggregate) {
			return
		}
	}
	w.fixed.Store(true)
	for _, after := range w.plan.KilledReplays {
		w.killed(after.Duration, "parked", "replay", "--all")
	}
	if !w.succeeds("parked", "replay", "--all") {
		return
	}
	// If a replay was killed after an aggregate was unparked, its messages stay in the queue, and
	// those that it had received are locked until their locks expire.
	for _, s := range patients {
		for end := time.Now().Add(settled); w.isAside(s.Aggregate) && time.Now().Before(end); pause(w.Context(), 10*time.Second) {
			if !w.succeeds("parked", "replay", s.Aggregate) {
				return
			}
		}
	}
	w.record.Note(func(run *checker.Run) { run.Replayed = true })
}

func (w *world) isAside(aggregate string) bool {
	run := w.record.Run()
	return slices.ContainsFunc(w.asideOf(), func(a checker.Aside) bool { return run.Names(a) == aggregate })
}

// drop has the operator drop what parks an aggregate, and reports whether that succeeded.
func (w *world) drop(aggregate string) bool {
	drop := []string{"parked", "drop", aggregate, "--yes"}
	for _, after := range w.plan.KilledDrops(aggregate) {
		w.killed(after.Duration, drop...)
	}
	return w.succeeds(drop...)
}

// succeeds repeats a command until it succeeds, a few times: a projector may hold the session of an
// aggregate for longer than it waits.
func (w *world) succeeds(args ...string) bool {
	for tries := 1; ; tries++ {
		code, said := w.operate(nil, args...)
		if code == commandline.ExitOK {
			return true
		}
		if tries == 10 {
			w.record.End(strings.Join(args, " "), fmt.Errorf("exit code %d: %s", code, said))
			return false
		}
		pause(w.Context(), 10*time.Second)
	}
}

// killed runs a command until its process is killed after d.
func (w *world) killed(d time.Duration, args ...string) { w.killedBy(d, nil, args...) }

// killedBy is killed with other settings.
func (w *world) killedBy(d time.Duration, change func(*projector.Config, *projector.Options), args ...string) {
	ctx, kill := context.WithCancel(w.Context())
	defer kill()
	bus, mongo := network.NewLink(w.busHub), network.NewLink(w.mongoHub)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code, _ := w.command(ctx, bus, mongo, change, args...)
		w.trace.add("projector %s, to be killed after %s: exit code %d", strings.Join(args, " "), d, code)
	}()
	pause(w.Context(), d)
	bus.Kill(false)
	mongo.Kill(false)
	kill()
	<-ended
}

// operate runs a command over links without faults; change may be nil.
func (w *world) operate(change func(*projector.Config, *projector.Options), args ...string) (code int, said string) {
	code, said = w.command(w.Context(), network.NewLink(w.busHub), network.NewLink(w.mongoHub), change, args...)
	w.trace.add("projector %s: exit code %d\n%s", strings.Join(args, " "), code, said)
	return code, said
}

// command runs one of the projector's operator commands, with other settings if change is not nil.
func (w *world) command(
	ctx context.Context, bus, mongo *network.Link, change func(*projector.Config, *projector.Options), args ...string,
) (code int, said string) {
	var out bytes.Buffer
	c, o := w.projectorConfig(), projector.Options{
		Logger: w.logger("operator"), Instance: "operator", Projections: w.projectionsOf(nil), ServiceBus: busOptions(bus),
		Mongo: func(o *options.ClientOptions) { o.SetDialer(mongo) },
	}
	w.programOf(operatorsProgram).runs(&c, &o)
	if change != nil {
		change(&c, &o)
	}
	code = projector.Execute(ctx, args, func() (projector.Config, error) { return c, nil }, o, &out, &out, nil)
	return code, out.String()
}
