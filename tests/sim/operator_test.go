package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// produce runs one of the producer's operator commands, over links without faults.
func (w *world) produce(args ...string) (code int, output string) {
	var out bytes.Buffer
	load := func() ([]producer.Config, error) { return w.producerConfigs(), nil }
	run := func(context.Context, []producer.Config) error {
		w.Error("the command ran the producer")
		return nil
	}
	link := network.NewBlobLink(checkpointWitness{w, w.blob.Transport()})
	code = producer.Execute(w.Context(), args, load, producer.Options{
		Logger: w.logger("operator"), Instance: "operator", ServiceBus: busOptions(network.NewLink(w.busHub)),
		Blob:  blobOptions(w.recorded(senderSide{w, link})),
		Mongo: func(o *options.ClientOptions) { o.SetDialer(network.NewLink(w.mongoHub)) },
		Store: w.storeOver(network.NewLink(w.mongoHub)),
	}, &out, &out, run)
	w.trace.add("producer %s: exit code %d\n%s", strings.Join(args, " "), code, strings.TrimSpace(out.String()))
	return code, out.String()
}

// rewind has the operator rewind the checkpoint of a stream, whichever replica leads: everything
// since is published again, under new message ids, and has no effect. While storage or MongoDB is
// unavailable it is retried a few times.
func (w *world) rewind(step plan.Step) {
	to := time.Now().Add(-step.For.Duration)
	if to.Before(w.began) {
		to = w.began
	}
	for range 10 {
		// A moment is given in whole seconds, and that in which the stream began is the first
		// possible one.
		code, _ := w.produce("token", "rewind", "--force", "--stream", step.Stream, "--to", to.UTC().Truncate(time.Second).Add(time.Second).Format(time.RFC3339))
		if code == commandline.ExitOK {
			w.met.add("checkpoints taken back", 1)
			return
		}
		pause(w.Context(), 2*time.Second)
	}
	w.trace.add("%s is not taken back", step.Stream)
}

// storedText returns the text of an object beside the checkpoints.
func (w *world) storedText(name string) ([]byte, error) {
	if w.plan.Settings.Store != "" {
		object, err := w.store.Get(w.Context(), name)
		return object.Data, err
	}
	response, err := w.blobs.DownloadStream(w.Context(), container, name, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

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
		code, output := w.operate(nil, args...)
		if code == commandline.ExitOK {
			return true
		}
		if tries == 10 {
			w.record.End(strings.Join(args, " "), fmt.Errorf("exit code %d: %s", code, output))
			return false
		}
		pause(w.Context(), 10*time.Second)
	}
}

// killed runs a command until its process is killed after d.
func (w *world) killed(d time.Duration, args ...string) { w.killedBy(d, nil, args...) }

// killedBy is like killed with other settings.
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
func (w *world) operate(change func(*projector.Config, *projector.Options), args ...string) (code int, output string) {
	code, output = w.command(w.Context(), network.NewLink(w.busHub), network.NewLink(w.mongoHub), change, args...)
	w.trace.add("projector %s: exit code %d\n%s", strings.Join(args, " "), code, output)
	return code, output
}

// command runs one of the projector's operator commands, with other settings if change is not nil.
func (w *world) command(
	ctx context.Context, bus, mongo *network.Link, change func(*projector.Config, *projector.Options), args ...string,
) (code int, output string) {
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

// repair makes a document of the read model wrong, and has an operator repair its aggregate beside
// the writers, the services and whatever happens to them. The first commands are killed at any
// moment, the last one is not.
func (w *world) repair(step plan.Step) {
	w.work.Go(func() {
		ctx := w.Context()
		random := rand.New(rand.NewPCG(step.Random, 0xd8))
		insert := func(from, to int64) {
			for version := from; version <= to; version++ {
				w.insert(ctx, step.Aggregate, version, fmt.Sprintf("Kind%d", random.IntN(3)))
				pause(ctx, time.Duration(random.Int64N(int64(80*time.Millisecond))))
			}
		}
		insert(1, step.Before)
		w.work.Go(func() { insert(step.Before+1, step.Total) })
		w.index(ctx, w.collectionOf(step.Aggregate), "aggregateId", "version")
		w.commit(ctx, func() error {
			_, err := w.readModel().UpdateOne(ctx, bson.D{{Key: "_id", Value: step.Aggregate}, {Key: "events", Value: bson.D{{Key: "$gt", Value: 0}}}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "firstOccurredAt", Value: "never"}, {Key: "types.Wrong", Value: 1}}}})
			return err
		})
		knows := w.knowsSource(w.collectionOf(step.Aggregate))
		repair := []string{"repair", "--", step.Aggregate}
		w.slow("find", 40, step.Delay.Duration)
		for _, after := range step.KilledDrops {
			w.killedBy(after.Duration, knows, repair...)
		}
		if !w.until(func(code int) bool { return code == commandline.ExitOK }, knows, repair...) {
			return
		}
		w.met.add("aggregates repaired", 1)
		// What a command that was killed had in hand was locked. It is only to be removed: a replay
		// applies nothing of it.
		if w.isAside(step.Aggregate) {
			w.until(func(int) bool { return !w.isAside(step.Aggregate) }, knows, "parked", "replay", step.Aggregate)
		}
	})
}

// knowsSource adds what a command needs that reads a collection of the source and the checkpoint of
// its stream.
func (w *world) knowsSource(collection string) func(c *projector.Config, o *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		c.SourceDatabase, c.SourceCollection = plan.Database, collection
		c.AggregateIDPath, c.EventTypePath, c.VersionPath = "aggregateId", "type", "version"
		c.Stream, c.CheckpointContainer, c.ClaimContainer = streamOf(collection), container, claims
		c.Blob = azure.Blob{ConnectionString: blob.ConnectionString(blobHost)}
		o.Blob = blobOptions(w.blob.Transport())
		if w.plan.Settings.Store != "" {
			c.CheckpointStore, c.CheckpointMongoURI, c.CheckpointMongoDatabase = "mongodb", mongo.URI("mongo:27017"), checkpoints
		}
	}
}
