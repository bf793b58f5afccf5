package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

const (
	// leaderPatience bounds the wait for a leader: far above any takeover.
	leaderPatience = 60 * time.Second
	// sameError is how often a service may end with the same error before the run is given up.
	sameError = 3
	// packsFollowed is the time within which a leader follows `packs on`.
	packsFollowed = 10 * time.Second
	// grain is how often a condition that no event announces is checked.
	grain = 20 * time.Millisecond
)

// fill makes the places of the services; nothing is started yet.
func (r *runner) fill(producer, projector string) {
	common := []string{"HTTP_ADDR=127.0.0.1:0", "LOG_LEVEL=info"}
	for _, name := range []string{emulator.EnvMongo, emulator.EnvServiceBus, emulator.EnvBlob} {
		common = append(common, name+"="+r.places.endpoints[name])
	}
	common = append(common, "CLAIM_CHECK_CONTAINER="+r.places.container+"-claims")
	route := r.places.route
	if route.Queue != "" {
		common = append(common, "SERVICE_BUS_QUEUE="+route.Queue)
	} else {
		common = append(common, "SERVICE_BUS_TOPIC="+route.Topic)
	}
	operations := "insert" // what is written is a log of events
	if r.options.Following() {
		operations = strings.Join(r.options.Follow.Operations(), ",")
	}
	ofProducer := append([]string{
		emulator.EnvMongo + "=" + r.places.sourceURI, // behind the one of all services: the last one counts
		"MONGODB_DATABASE=" + r.places.source, "MONGODB_COLLECTION=" + r.places.collection,
		"SESSION_KEY=" + r.options.SessionKey.String(), "PACK=" + r.options.Pack, "BLOB_CONTAINER=" + r.places.container, "ON_OVERSIZE=claimcheck",
		"OPERATIONS=" + operations,
	}, r.options.Follow.Settings...)
	if store := r.options.CheckpointStore; store != "blob" {
		ofProducer = append(ofProducer, "CHECKPOINT_STORE="+store, "CHECKPOINT_MONGODB_URI="+r.places.sourceURI, "CHECKPOINT_MONGODB_DATABASE=sluice")
		for _, name := range []string{"CHECKPOINT_REDIS_URL", "KUBECONFIG", "CHECKPOINT_KUBERNETES_NAMESPACE"} { // of --services with such a store
			if value, set := os.LookupEnv(name); set {
				ofProducer = append(ofProducer, name+"="+value)
			}
		}
	}
	if r.options.Following() {
		ofProducer = append(ofProducer, "START_FROM=timestamp", "START_AT="+r.source.From.UTC().Format(time.RFC3339))
	} else if r.options.BeginWithSnapshot {
		// At this rate a snapshot takes long enough for harm within it.
		ofProducer = append(ofProducer, "START_FROM=snapshot", "SNAPSHOT_CHUNK=500", "SNAPSHOT_RATE=4000")
	} else {
		ofProducer = append(ofProducer, "START_FROM=latest")
	}
	for i := range r.options.Producers {
		r.producers = append(r.producers, r.slot(producer, "producer", i, common, ofProducer...))
	}
	for i := range r.options.Projectors {
		own := []string{"READ_MODEL_DATABASE=" + r.places.readModel, "PROJECTION=" + r.options.Projection}
		if r.options.ProjectionURL != "" {
			own = append(own, "PROJECTION_URL="+r.options.ProjectionURL)
		}
		if route.Queue == "" {
			own = append(own, "SERVICE_BUS_SUBSCRIPTION="+route.Subscription)
		}
		r.projectors = append(r.projectors, r.slot(projector, "projector", i, common, own...))
	}
}

func (r *runner) slot(program, service string, i int, common []string, own ...string) *child.Slot {
	slot := &child.Slot{
		Name:        fmt.Sprintf("%s-%d", service, i+1),
		Program:     program,
		LogDir:      r.logs,
		Env:         slices.Concat(common, own),
		OnEvent:     r.event,
		GiveUpAfter: sameError,
	}
	if r.options.Following() {
		slot.StopPatience = servicesEnd
	}
	return slot
}

func (r *runner) slots() []*child.Slot { return slices.Concat(r.producers, r.projectors) }

func (r *runner) slotRuns() []func(context.Context) error {
	var runs []func(context.Context) error
	for _, s := range r.producers {
		runs = append(runs, s.Run)
	}
	for _, s := range r.projectors {
		runs = append(runs, func(ctx context.Context) error {
			r.before.await(ctx)
			return s.Run(ctx)
		})
	}
	return runs
}

// leader returns the producer that leads and reads.
func (r *runner) leader() (slot *child.Slot, status child.Status, ok bool) {
	return child.Leader(r.producers)
}

// healthy reports whether every service answers.
func (r *runner) healthy() bool {
	expected := r.slots()
	if r.before.building() {
		expected = r.producers
	}
	return absent(expected) == ""
}

var errNoLeader = errors.New("no producer became leader with an open change stream")

// awaitLeader waits until events that are inserted will be seen, and a projector is there to apply
// them.
func (r *runner) awaitLeader(ctx context.Context, stop <-chan struct{}) error {
	r.event(fmt.Sprintf("starting producers: %d, projectors: %d", len(r.producers), len(r.projectors)))
	waiting, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	began := time.Now()
	var patience reminder
	for {
		if patience.due(time.Since(began)) {
			r.live.Event(r.clock(), "waiting: "+r.awaited())
		}
		if _, status, ok := r.leader(); ok && r.healthy() && r.isWatched() {
			r.event(fmt.Sprintf("%s leads, epoch %d", status.Instance, status.Epoch))
			return r.confirmPacks(ctx)
		}
		if closed(stop) {
			return ErrInterrupted
		}
		if retry.Sleep(waiting, grain) != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if _, _, ok := r.leader(); ok {
				return fmt.Errorf("wait for the services for %s: %s", leaderPatience, r.awaited())
			}
			return fmt.Errorf("wait for a leader: %w after %s", errNoLeader, leaderPatience)
		}
	}
}

// confirmPacks lets the leaders send packs, as an operator does after the readers were deployed.
// It then waits as long as a leader may take to notice, because no status shows that.
func (r *runner) confirmPacks(ctx context.Context) error {
	if r.options.Pack != "auto" {
		return nil
	}
	if _, err := run(ctx, "producer", r.producers[0], nil, "packs", "on", "--readers-know", "--rules-checked"); err != nil {
		return err
	}
	return retry.Sleep(ctx, packsFollowed)
}

func (r *runner) isWatched() bool { return closed(r.watched) }

// withLogs adds to an error where the services' logs are, and the last complaints in them, unless
// the error is one of these.
func (r *runner) withLogs(err error) error {
	switch {
	case errors.Is(err, ErrInterrupted):
		return err
	case errors.Is(err, child.ErrRepeats), errors.Is(err, child.ErrRefused):
		return fmt.Errorf("%w\nThe services' logs are in %s", err, r.logs)
	}
	return fmt.Errorf("%w\n%s", err, r.complaints())
}

func (r *runner) complaints() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The services' logs are in %s. Their last complaints:", r.logs)
	reported := false
	for _, s := range r.slots() {
		for _, line := range s.Worst() {
			fmt.Fprintf(&b, "\n    %s: %s", s.Name, plain(line))
			reported = true
		}
	}
	if !reported {
		b.WriteString(" none")
	}
	return b.String()
}

// plain returns a line of a service's log as a sentence; a line that is no record stays as it is.
func plain(line string) string {
	var record struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
		Error string `json:"error"`
		ToDo  string `json:"to_do"`
	}
	if json.Unmarshal([]byte(line), &record) != nil || record.Msg == "" {
		return line
	}
	var text strings.Builder
	text.WriteString(record.Level + " " + record.Msg)
	for _, more := range []string{record.Error, record.ToDo} {
		if more != "" {
			text.WriteString(": " + more)
		}
	}
	return text.String()
}
