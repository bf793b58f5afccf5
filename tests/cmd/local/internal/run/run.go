// Package run is one run of the local command: the embedded stack, the services as processes, the
// events, the harm, and the check of the outcome.
//
// Everything is measured outside the services: at the broker, in the change stream of the read
// model, and at the end by comparing the whole read model. The only thing taken from the services'
// own status is which one leads.
//
// Guaranteed: when [Run] returns, no process and no goroutine of it is left.
package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/source"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/view"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// ErrInterrupted is a run that was stopped before it was done.
var ErrInterrupted = errors.New("interrupted before the run was done")

// runner is the state of one run.
type runner struct {
	options flags.Options
	live    *view.Live
	rec     *history.Recorder
	stack   *stack.Stack   // nil with --external
	source  *source.Source // nil without --follow
	places  places         // of the data
	logs    string         // directory

	witnessIn string // the collection of the read model in which events are seen to be applied

	producers  []*child.Slot
	projectors []*child.Slot

	started   time.Time
	watched   chan struct{} // closed when our own change stream is open
	firstSent atomic.Int64  // unix nanoseconds of the first insert; 0 before
	loaded    atomic.Bool
	failovers failovers
	before    brownfield
	killing   sync.Mutex // one kill of a projector at a time
	memory    memory
	moved     atomic.Int64   // unix nanoseconds of the last event that is not in the recorder
	changing  atomic.Int64   // how many commands run that change the read model
	verdict   source.Verdict // with --follow; written by follow, read by check behind it
	console   consoles
	readModel *mongo.Database // set before the services run
	onLeader  sync.Mutex      // one leader is taken away at a time
}

// Run runs once and returns what came out. stop, when closed, ends a run that has no end of its
// own: what was inserted is still checked. ctx ends any run at once. The outcome is complete only
// when the error is nil; the directory of the services' logs is kept unless everything came out
// right. concluded is called with the outcome before the console ends.
func Run(ctx context.Context, stop <-chan struct{}, o flags.Options, live *view.Live, concluded func(report.Outcome)) (outcome report.Outcome, err error) {
	dir, err := os.MkdirTemp("", "sluice-local-")
	if err != nil {
		return outcome, fmt.Errorf("make a directory for programs and logs: %w", err)
	}
	r := &runner{options: o, live: live, rec: history.NewRecorder(), logs: filepath.Join(dir, "logs"), started: time.Now(), watched: make(chan struct{})}
	defer func() {
		err = errors.Join(err, r.tidy(dir, errors.Is(err, ErrInterrupted) || (err == nil && outcome.OK())))
	}()
	r.console.presses = make(chan chaos.Action)
	live.Watch(r.console.heard)
	if o.Logs != "" {
		r.logs = o.Logs
	} else if err := os.Mkdir(r.logs, 0o755); err != nil {
		return outcome, fmt.Errorf("make a directory for logs: %w", err)
	}
	if o.Follow.URI != "" {
		if r.source, err = source.Open(ctx, o.Follow, o.WriteLoad); err != nil {
			return outcome, err
		}
		defer func() { err = errors.Join(err, r.source.Close(ctx)) }()
	}
	producer, projector, err := r.programs(ctx, dir)
	if err != nil {
		return outcome, err
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx)) // the services need the stack for their stop
	defer stopServing()
	servers, stopped := errgroup.WithContext(serving)
	if err := r.openStack(ctx, stopped, servers); err != nil {
		return outcome, err
	}
	if err := r.openConsole(ctx); err != nil {
		return outcome, errors.Join(err, func() error { stopServing(); return servers.Wait() }())
	}
	defer func() { err = errors.Join(err, r.console.close()) }()
	body, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(stopped, func() { cancel(errors.New("the embedded stack stopped")) })
	if outcome, err = r.pipeline(body, stop, producer, projector); err == nil {
		concluded(outcome)
		r.concluded(ctx, stop, outcome)
	}
	stopServing()
	return outcome, errors.Join(err, servers.Wait())
}

// programs returns the paths of the services: those in --services, or new builds in dir.
func (r *runner) programs(ctx context.Context, dir string) (producer, projector string, err error) {
	if r.options.Services != "" {
		built, err := filepath.Abs(r.options.Services)
		if err != nil {
			return "", "", fmt.Errorf("find the services: %w", err)
		}
		return filepath.Join(built, "producer"), filepath.Join(built, "projector"), nil
	}
	r.event("building the services")
	return child.Build(ctx, dir)
}

// openStack starts the servers, unless they are somewhere else.
func (r *runner) openStack(ctx, serving context.Context, servers *errgroup.Group) error {
	if r.options.External {
		r.places = externalPlaces(r.started, r.options.Endpoints)
		r.event("using external servers; the broker is not watched: no count of what was published")
		return nil
	}
	s, err := Open(ctx, r.options)
	if err != nil {
		return err
	}
	servers.Go(func() error { return s.Run(serving) })
	r.stack, r.places = s, embeddedPlaces(s)
	s.ServiceBus.Observe(r.accepted)
	r.event("the embedded stack serves MongoDB, Service Bus and Blob storage")
	if f := r.options.Follow; f.URI != "" {
		r.places.sourceURI, r.places.source, r.places.collection = f.URI, f.Database, f.Collection
		r.event(fmt.Sprintf("following %s.%s of your own MongoDB%s", f.Database, f.Collection, map[bool]string{false: ", which is only read"}[r.options.WriteLoad]))
	}
	return nil
}

// pipeline is the run itself: services up, events in, harm done, everything seen, services
// down, check.
func (r *runner) pipeline(ctx context.Context, stop <-chan struct{}, producer, projector string) (outcome report.Outcome, err error) {
	data, err := r.connect()
	if err != nil {
		return outcome, err
	}
	defer func() { err = errors.Join(err, data.close(context.WithoutCancel(ctx))) }()

	r.readModel, r.witnessIn = data.readModel, r.options.Projection
	if r.options.ProjectionURL != "" {
		if r.witnessIn, err = r.guardsOf(ctx); err != nil {
			return outcome, err
		}
	}
	if err := r.fillSource(ctx, data); err != nil {
		return outcome, err
	}

	background, stopBackground := context.WithCancel(ctx)
	defer stopBackground()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching := []func(context.Context) error{r.watch(data), r.sample, r.show}
	if r.options.Following() {
		watching = append(watching, func(ctx context.Context) error { return r.source.Watch(ctx, r.event) })
	}
	watchers := r.spawn(background, cancel, watching...)

	services, stopServices := context.WithCancel(ctx)
	defer stopServices()
	r.fill(producer, projector)
	running := r.spawn(services, cancel, r.slotRuns()...)

	work := r.work
	if r.options.Following() {
		work = r.follow
	}
	workErr := work(ctx, stop, data)

	r.freeze(ctx)
	stopServices()
	workErr = errors.Join(workErr, running())
	stopBackground()
	workErr = errors.Join(workErr, watchers())
	r.live.Clear()
	if cause := context.Cause(ctx); cause != nil && !givenUp(workErr) {
		if errors.Is(cause, context.Canceled) {
			cause = ErrInterrupted
		}
		return outcome, r.withLogs(cause)
	}
	if workErr != nil && !givenUp(workErr) {
		return outcome, r.withLogs(workErr)
	}
	return r.check(ctx, data, workErr)
}

// work feeds the pipeline and returns when everything that was asked for has happened and is to be
// seen.
func (r *runner) work(ctx context.Context, stop <-chan struct{}, data *data) error {
	if err := r.awaitLeader(ctx, stop); err != nil {
		return err
	}
	whole := ctx
	group, ctx := errgroup.WithContext(ctx)
	loading, stopLoading := context.WithCancel(ctx)
	defer stopLoading()
	group.Go(func() error {
		defer r.loaded.Store(true)
		return r.load(loading, data)
	})
	group.Go(func() error { return r.build(ctx) })
	group.Go(func() error {
		r.before.await(loading)
		return r.harm(loading)
	})
	group.Go(func() error { return r.pressed(loading) })
	group.Go(func() error {
		defer stopLoading()
		return r.awaitDone(ctx, stop, stopLoading, data)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return r.verify(whole)
}

// spawn runs functions until ctx ends; the first error ends everything. The result joins them.
func (r *runner) spawn(ctx context.Context, fail context.CancelCauseFunc, fns ...func(context.Context) error) (join func() error) {
	var group errgroup.Group
	for _, fn := range fns {
		group.Go(func() error {
			err := fn(ctx)
			if err != nil {
				fail(err)
			}
			return err
		})
	}
	return group.Wait
}

// event shows a line to the user, and counts as movement.
func (r *runner) event(text string) {
	r.moved.Store(time.Now().UnixNano())
	r.live.Event(r.clock(), text)
}

// clock returns the time that is shown: since the first insert or, if other programs insert, since
// the run follows the collection. It returns view.Preparing before.
func (r *runner) clock() time.Duration {
	if r.firstSent.Load() == 0 {
		return view.Preparing
	}
	return r.elapsed()
}

// elapsed counts from the first insert; before it, from the start.
func (r *runner) elapsed() time.Duration {
	if first := r.firstSent.Load(); first != 0 {
		return time.Since(time.Unix(0, first))
	}
	return time.Since(r.started)
}

// tidy removes the programs, and the logs unless they are needed to understand a failure.
func (r *runner) tidy(dir string, whole bool) error {
	if whole {
		return os.RemoveAll(dir)
	}
	var errs []error
	for _, program := range []string{"producer", "projector"} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, program)))
	}
	return errors.Join(errs...)
}
