package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
)

const (
	// shownEvents is how many lines of the run the console shows.
	shownEvents = 40
	// tracedEvents is how many events of an aggregate the console shows.
	tracedEvents = 50
)

// consoles is what a run shows in a browser, and takes from it; safe for concurrent use.
type consoles struct {
	presses chan chaos.Action // harm that a button does
	address string            // empty: there is no console
	close   func() error      // ends the console

	mu      sync.Mutex // guards everything below
	events  []console.Event
	waiting string        // for the person who watches
	frozen  *console.View // of the moment before the services stopped
	verdict *report.Outcome
}

// heard keeps a line of the run for the console.
func (c *consoles) heard(at time.Duration, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, console.Event{At: at, Text: text})
	c.events = c.events[max(0, len(c.events)-shownEvents):]
}

// awaits shows what the run waits for; empty: nothing.
func (c *consoles) awaits(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = text
}

// openConsole serves the console until r.console.close is called. If the usual port is taken, it
// uses another one.
func (r *runner) openConsole(ctx context.Context) error {
	r.console.close = func() error { return nil }
	if r.options.Console == "" {
		return nil
	}
	listener, err := console.Listen(ctx, r.options.Console)
	if err != nil && r.options.Console == flags.UsualConsole {
		listener, err = console.Listen(ctx, "127.0.0.1:0")
	}
	if errors.Is(err, console.ErrNotLoopback) {
		return &flags.UsageError{Problems: []string{"--console: " + err.Error()}}
	} else if err != nil {
		return fmt.Errorf("--console: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	page := console.New(r.home())
	go func() { served <- page.Serve(serving, listener, slog.New(slog.DiscardHandler)) }()
	r.console.close = sync.OnceValue(func() error {
		stop()
		return <-served
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return errors.Join(err, r.console.close())
	}
	r.console.address = "http://localhost:" + port + "/"
	r.event("the console is at " + r.console.address)
	return nil
}

// concluded shows the verdict and, if the run is kept, waits until it is interrupted.
func (r *runner) concluded(ctx context.Context, stop <-chan struct{}, outcome report.Outcome) {
	r.console.mu.Lock()
	r.console.verdict = &outcome
	r.console.mu.Unlock()
	if r.console.address == "" || !r.options.Keep {
		return
	}
	if !r.options.Ends() {
		stop = nil // it has ended the run: the next signal ends the console
	}
	r.live.Event(r.clock(), "the console stays at "+r.console.address+" until Ctrl-C")
	select {
	case <-ctx.Done():
	case <-stop:
	}
}

// freeze keeps the state of the run for the time after the services have stopped.
func (r *runner) freeze(ctx context.Context) {
	if r.console.address == "" {
		return
	}
	view := r.view(ctx)
	r.console.mu.Lock()
	defer r.console.mu.Unlock()
	r.console.frozen = &view
}

// home returns what the console reads and does. What concerns the read model is done by the
// commands of the projector, as an operator does it.
func (r *runner) home() console.Home {
	h := console.Home{
		Title:  "local run",
		View:   r.viewed,
		Parked: r.parkedList,
		Show:   r.parkedShow,
		Replay: func(ctx context.Context, aggregate string) (string, error) {
			return r.change(ctx, "parked", "replay", "--", aggregate)
		},
		Drop: func(ctx context.Context, aggregate, message string) (string, error) {
			words := []string{"parked", "drop", "--yes"}
			if message != "" {
				words = append(words, "--message", message)
			}
			return r.change(ctx, append(words, "--", aggregate)...)
		},
		Harm: r.press,
	}
	if !r.options.Following() {
		h.Trace = r.trace
	}
	for _, kind := range chaos.Kinds() {
		if r.options.Refuses(kind.Kind) == "" && kind.Kind != chaos.KillLeader {
			h.Harms = append(h.Harms, console.Harm{Kind: string(kind.Kind), Says: kind.Says})
		}
	}
	return h
}

// viewed returns the present state, or the last one of a run that has ended.
func (r *runner) viewed(ctx context.Context) console.View {
	r.console.mu.Lock()
	frozen, verdict := r.console.frozen, r.console.verdict
	r.console.mu.Unlock()
	var view console.View
	if frozen == nil {
		view = r.view(ctx)
	} else {
		view = *frozen
		state := *frozen.Run
		view.At, view.Run = time.Now(), &state
	}
	r.console.mu.Lock()
	view.Run.Events, view.Run.Waiting = slices.Clone(r.console.events), r.console.waiting
	slices.Reverse(view.Run.Events)
	r.console.mu.Unlock()
	if verdict != nil {
		var summary strings.Builder
		verdict.Summary(&summary)
		view.Run.Summary = strings.TrimSpace(summary.String())
		view.Run.Verdict, _, _ = strings.Cut(view.Run.Summary, "\n")
		view.Run.Right, view.Run.Waiting = verdict.OK(), ""
	}
	return view
}

// view returns the state that the services, the broker and the recorder have now.
func (r *runner) view(ctx context.Context) console.View {
	counts := r.rec.Counts()
	view := console.View{At: time.Now(), Run: &console.Run{
		Elapsed: r.clock(), Followed: r.options.Following(), Inserted: r.committed(), Applied: r.applied(),
	}}
	if !r.options.Following() {
		_, view.Run.Total = r.events()
	}
	for _, f := range r.failovers.measured() {
		view.Run.Failovers = append(view.Run.Failovers, console.Failover{
			Kind: f.Kind, Epoch: f.Epoch, LeadsAfterMS: f.LeadsAfterMs, PublishAfterMS: f.FirstPublishAfterMs,
		})
	}
	stream := console.Stream{Name: r.places.source + "." + r.places.collection, Epoch: counts.LastEpoch}
	if _, status, ok := r.leader(); ok {
		stream.Leader, stream.Epoch, stream.Position = status.Instance, status.Epoch, status.Position
		stream.InFlight, stream.Lanes = &status.InFlight, &status.Lanes
		stream.FenceMarginMS, stream.FenceAfterMS = &status.FenceMarginMs, &status.FenceAfterMs
		stream.HeadroomSeconds, stream.HeadroomNote = status.HeadroomSeconds, status.HeadroomNote
		stream.LagMS = &status.LagMs
		if s := status.Snapshot; s != nil {
			stream.Snapshot = &console.Progress{State: s.Reason, Done: s.Documents, Total: s.Estimated, Unit: "documents", BeganAt: s.BeganAt}
		}
	}
	for _, slot := range r.producers {
		if status, fresh := slot.Status(); fresh {
			stream.Replicas = append(stream.Replicas, console.Replica{Name: status.Instance, Role: status.Role, Error: status.Error})
		}
	}
	view.Streams = []console.Stream{stream}
	view.Projections = []console.Projection{r.projection(ctx)}
	if r.stack != nil {
		view.Streams[0].Published = &counts.Published
		stats := r.stack.ServiceBus.Stats(r.places.route.Out())
		queue := &console.Queue{Entity: r.places.route.Out(), Active: new(int64(stats.Active)), DeadLettered: map[string]int64{}}
		for _, m := range r.stack.ServiceBus.PeekDeadLetters(r.places.route.Out(), stats.DeadLettered) {
			queue.DeadLettered[cmp.Or(m.Reason, "without a reason")]++
		}
		view.Queue = queue
	}
	return view
}

// projection returns the state of the projectors and of the read model.
func (r *runner) projection(ctx context.Context) console.Projection {
	p := console.Projection{Name: r.options.Projection, Database: r.places.readModel, Applied: new(r.applied()), Build: r.before.progress.Load()}
	p.SessionsHeld, p.Duplicates, p.Redelivered = new(int64), new(int64), new(int64)
	for _, slot := range r.projectors {
		status, fresh := slot.Status()
		if !fresh {
			continue
		}
		p.Replicas = append(p.Replicas, status.Instance)
		*p.SessionsHeld += status.SessionsHeld
		*p.Duplicates += status.Duplicates
		*p.Redelivered += status.Redelivered
		if p.LagMS == nil || status.LagMs > *p.LagMS {
			p.LagMS = &status.LagMs
		}
	}
	parked := r.parked(ctx)
	p.Parked = &parked
	if latency := r.rec.Latency(); r.rec.Counts().Visible > 0 {
		p.P50MS, p.P99MS = &latency.P50, &latency.P99
	}
	return p
}

// press does harm that a person asks for.
func (r *runner) press(ctx context.Context, kind string) (string, error) {
	plan, err := chaos.Parse(kind + "@0s")
	if err != nil {
		return "", err
	}
	action := plan[0]
	if why := r.options.Refuses(action.Kind); why != "" {
		return "", errors.New(why)
	}
	if action.Kind == chaos.Poison {
		action.For = 0 // the person replays it
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case r.console.presses <- action:
		return "it begins now; the events of the run show what happens", nil
	case <-ctx.Done():
		return "", errors.New("no event is inserted at the moment: harm can be done while a run inserts events, or waits for others")
	}
}

// pressed does what is asked for until ctx ends. The run does not end before all of it is over.
func (r *runner) pressed(ctx context.Context) error {
	var doing errgroup.Group
	for {
		select {
		case <-ctx.Done():
			return doing.Wait()
		case action := <-r.console.presses:
			r.failovers.pressed.Add(1)
			doing.Go(func() error {
				defer r.failovers.pressed.Add(-1)
				err := r.pressedOne(ctx, action)
				if err == nil || ctx.Err() != nil {
					return nil
				}
				r.event(fmt.Sprintf("%s: %v", action.Kind, err))
				return err
			})
		}
	}
}

// parkedList runs `parked list`.
func (r *runner) parkedList(ctx context.Context) (parked []console.Parked, err error) {
	err = r.ask(ctx, &parked, "parked", "list", "--json")
	return parked, err
}

// parkedShow runs `parked show`.
func (r *runner) parkedShow(ctx context.Context, aggregate string) (parked console.Parked, err error) {
	err = r.ask(ctx, &parked, "parked", "show", "--json", "--", aggregate)
	return parked, err
}

// trace follows the newest events of an aggregate.
func (r *runner) trace(ctx context.Context, aggregate string) (console.Trace, error) {
	h := r.rec.Of(aggregate)
	if len(h.Committed) == 0 {
		return console.Trace{}, fmt.Errorf("this run has inserted no event of %q", aggregate)
	}
	steps := make([]console.Step, len(h.Committed))
	for i, c := range h.Committed {
		steps[i] = console.Step{Version: c.Version, Inserted: c.At, State: "inserted"}
	}
	for _, a := range h.Accepted {
		i := slices.IndexFunc(steps, func(s console.Step) bool { return s.Version == a.Version })
		switch {
		case i < 0:
		case steps[i].Published.IsZero():
			steps[i].Published, steps[i].Epoch, steps[i].Position, steps[i].State = a.At, a.Epoch, a.Position, "published"
		default:
			steps[i].Repeats++
		}
	}
	next := 0
	for _, o := range h.Observed {
		for ; next < len(steps) && int64(next) < o.Events; next++ {
			steps[next].Applied, steps[next].State = o.At, "applied"
		}
	}
	trace := console.Trace{Guard: fmt.Sprintf("The read model has %d of %d events of it.", next, len(steps))}
	if r.isParked(ctx, aggregate) {
		trace.Guard += " It is parked: the events that are not applied wait in the dead-letter queue, in order."
		for i := next; i < len(steps); i++ {
			if steps[i].State == "published" {
				steps[i].State = "parked"
			}
		}
	}
	trace.Steps = slices.Clone(steps[max(0, len(steps)-tracedEvents):])
	slices.Reverse(trace.Steps)
	return trace, nil
}

// isParked reports whether the timeline of an aggregate is parked. Other read models keep that
// elsewhere: it then reports false.
func (r *runner) isParked(ctx context.Context, aggregate any) bool {
	if r.readModel == nil || r.options.Projection != flags.Timeline {
		return false
	}
	found := r.readModel.Collection(flags.Timeline).FindOne(ctx, bson.D{
		{Key: "_id", Value: aggregate}, {Key: "_sluice.parked", Value: bson.D{{Key: "$exists", Value: true}}},
	})
	return found.Err() == nil
}
