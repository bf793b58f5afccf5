package pipeline_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The tests of this file follow the procedure "Another region" of infra/README.md: Service Bus and
// storage are lost with everything in them, MongoDB is not, and there is a copy of the checkpoint
// from before.

const copies = "checkpoint-copies"

// desk runs one of the producer's commands with settings that are not the default's.
func desk(w *world.World, change func(*producer.Config, *producer.Options), args ...string) world.Operated {
	w.Helper()
	config := w.ProducerConfig()
	if change != nil {
		change(&config, &producer.Options{})
	}
	return w.OperateProducer([]producer.Config{config}, args...)
}

// theCopy has the checkpoint copied, and returns the copy's name and content, which an operator
// stores outside the region.
func theCopy(w *world.World, change func(*producer.Config, *producer.Options)) (name string, content []byte) {
	w.Helper()
	_, err := w.Blobs().CreateContainer(w.Context(), copies, nil)
	require.NoError(w, err)
	made := desk(w, change, "token", "copy", "--container", copies)
	require.Equal(w, 0, made.Code, made.Err)
	_, name, found := strings.Cut(strings.TrimSpace(made.Out), copies+"/")
	require.True(w, found, made.Out)
	content = make([]byte, 4<<10)
	n, err := w.Blobs().DownloadBuffer(w.Context(), copies, name, content, nil)
	require.NoError(w, err)
	return name, content[:n]
}

// carryIn puts a copy into the storage of the new region.
func carryIn(w *world.World, name string, content []byte) {
	w.Helper()
	_, err := w.Blobs().CreateContainer(w.Context(), copies, nil)
	require.NoError(w, err)
	_, err = w.Blobs().UploadBuffer(w.Context(), copies, name, content, nil)
	require.NoError(w, err)
}

// waits starts a producer without a checkpoint, which neither begins the stream nor gives up.
func waits(w *world.World, instance string, change func(*producer.Config, *producer.Options)) *world.Producer {
	w.Helper()
	p := w.StartProducer(instance, func(c *producer.Config, o *producer.Options) {
		if change != nil {
			change(c, o)
		}
		c.StartFrom = "checkpoint"
	})
	w.Eventually(instance+" waits", func() bool { return strings.Contains(p.Log.Text(), "waiting for a checkpoint") })
	w.Pass(10 * time.Minute)
	require.Zero(w, w.Checkpoint(), "it begins none")
	require.Zero(w, w.Bus.Stats(world.Topic).Accepted)
	return p
}

// right requires that every aggregate has each of its events once (G1, G3), up to its last version,
// without a gap (G2).
func right(w *world.World) {
	w.Helper()
	for aggregate, events := range w.Inserted {
		read := w.TimelineOf(aggregate)
		require.EqualValues(w, events, read.Events, aggregate)
		require.EqualValues(w, events, read.Guard.Version, aggregate)
	}
}

// epochs returns the epochs of what the broker accepted, in its order.
func epochs(w *world.World) (all []int64) {
	for _, m := range w.Took() {
		all = append(all, m.Properties[envelope.PropEpoch].(int64))
	}
	return all
}

// G1 to G4: of what was published after the copy some was applied and some never received; there
// were more leaders, whom the copy does not know. In the new region everything is right, and no
// epoch comes a second time.
func TestG1G2G3G4AnotherRegionGoesOnFromACopy(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProjector(nil)
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(60, 6)
		w.Completed(60)
		w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 60 })
		name, content := theCopy(w, nil)
		for _, instance := range []string{"b", "c", "d"} {
			a.End()
			a = w.StartProducer(instance, nil)
			w.Leads(instance)
			w.InsertMany(20, 6)
		}
		w.Completed(120)
		p.MustEnd()
		w.InsertMany(50, 10) // four of the aggregates are new
		w.Published()
		require.Equal(t, 120, w.Bus.Stats(world.SubscriptionPath).Completed, "these are lost with the namespace")
		before := epochs(w)

		w.InAnotherRegion(func() {
			w.InsertMany(10, 5)
			b := waits(w, "b", nil)
			carryIn(w, name, content)
			undecided := desk(w, nil, "token", "restore", "--container", copies)
			require.Equal(t, 1, undecided.Code, "the operator must see what was not applied")
			require.Contains(t, undecided.Err, "--applied")
			require.Zero(w, desk(w, nil, "token", "restore", "--container", copies, "--applied").Code)
			w.Leads("b")
			p := w.StartProjector(nil)
			w.Completed(120) // 60 were before the copy
			w.InsertMany(30, 10)
			w.Completed(150)
			right(w)
			require.Greater(t, slices.Min(epochs(w)), slices.Max(before), "the copy's epoch is older than its last leader's")
			counted := p.MustEnd()
			require.Equal(t, 90, counted.Applied)
			require.Equal(t, 60, counted.Duplicates)
			require.Zero(t, w.Bus.Stats(world.SubscriptionPath).DeadLettered)

			twice := desk(w, nil, "token", "restore", "--container", copies, "--applied")
			require.Equal(t, 1, twice.Code)
			require.Contains(t, twice.Err, "changes have been published: read models that have them would take earlier ones for repeats")
			b.End()
		})
	})
}

// G1 and G2: what waited when the copy was made, including parked aggregates, is before the copy.
// From a time before the oldest of it everything is published again, and what was parked is parked
// again, with its later events in order, until it is replayed.
func TestG1G2G5AnotherRegionPublishesAgainWhatTheCopyHadBehindIt(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProjector(nil)
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(30, 3)
		w.Completed(30)
		w.Pass(time.Minute)
		oldest := time.Now().UTC()
		for _, version := range []int{1, 3, 4} { // the second is missing
			w.InsertDocument(anEvent("gap", version))
		}
		w.Eventually("it is parked", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 2 })
		p.MustEnd()
		w.InsertMany(30, 3)
		w.Eventually("it is in the checkpoint, and not applied", func() bool { return w.Checkpoint().Published == 63 })
		name, content := theCopy(w, nil)
		w.InsertMany(12, 3)
		w.Eventually("more is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 75 })
		a.End()

		w.InAnotherRegion(func() {
			waits(w, "b", nil)
			carryIn(w, name, content)
			require.Zero(w, desk(w, nil, "token", "restore", name, "--container", copies, "--to", oldest.Format(time.RFC3339)).Code)
			p := w.StartProjector(nil)
			w.Eventually("the parked event and the one behind it lie there again", func() bool {
				return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 2
			})
			w.Completed(43)
			right(w)
			require.EqualValues(t, 1, w.TimelineOf("gap").Events)
			p.MustEnd()

			require.Zero(w, w.OperateProjector(func(c *projector.Config, _ *projector.Options) { c.VersionGapWait = 0 }, "parked", "replay", "gap").Code)
			require.EqualValues(t, 3, w.TimelineOf("gap").Events)
			require.EqualValues(t, 4, w.TimelineOf("gap").Guard.Version)
			require.Equal(t, 0, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		})
	})
}

// G1 to G3: the read model is lost as well, and there is no copy. The stream is published again
// from a time that the oplog reaches, with an epoch that no leader had.
func TestG1G2G3AnotherRegionWithANewReadModelAndNoCopy(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.Pass(2 * time.Second)
		began := time.Now().UTC()
		p := w.StartProjector(nil)
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(60, 6)
		w.Completed(60)
		before := epochs(w)
		a.End()
		p.MustEnd()

		w.InAnotherRegion(func() {
			require.NoError(t, w.Client.Database(world.ReadModel).Drop(w.Context()))
			waits(w, "b", nil)
			require.Zero(w, desk(w, nil, "token", "restore", "--to", began.Format(time.RFC3339)).Code)
			p := w.StartProjector(nil)
			w.InsertMany(6, 6)
			w.Completed(66)
			right(w)
			require.Greater(t, slices.Min(epochs(w)), slices.Max(before))
			counted := p.MustEnd()
			require.Equal(t, 66, counted.Applied)
		})
	})
}

// G1: if positions are counted, an epoch names each new series. Leaders after the copy began one;
// the series that begins in the new region is larger anyway, so that no read model treats a new
// change as an old one.
func TestG1AnotherRegionCountsPastEverySeriesThatWas(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{DocumentDB: true}}, func(w *world.World) {
		plain := func(pipeline string) func(*producer.Config, *producer.Options) {
			return func(c *producer.Config, _ *producer.Options) {
				c.FullDocument, c.BeforeChange, c.OnUnknownAggregate, c.Pipeline = "default", "off", "documentKey", pipeline
				c.Operations = []envelope.Operation{envelope.Insert}
			}
		}
		was, is := plain(""), plain(`[{"$match": {"operationType": "insert"}}]`)
		p := w.StartProjector(nil)
		a := w.StartProducer("a", was)
		w.Eventually("a reads", func() bool { return w.Mongo.OpenStreams() > 0 })
		w.InsertMany(20, 4)
		w.Completed(20)
		w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 20 })
		name, content := theCopy(w, was)
		for _, instance := range []string{"b", "c"} {
			a.End()
			a = w.StartProducer(instance, was)
			w.Leads(instance)
		}
		a.End()
		require.Zero(w, desk(w, is, "token", "renumber").Code)
		d := w.StartProducer("d", is)
		w.Leads("d")
		w.InsertMany(40, 4)
		w.Completed(60)
		d.End()
		seen := maps.Clone(w.Inserted)
		p.MustEnd()

		w.InAnotherRegion(func() {
			carryIn(w, name, content)
			require.Equal(t, 0, desk(w, is, "token", "restore", "--container", copies, "--applied").Code)
			require.Equal(t, 0, desk(w, is, "token", "renumber").Code)
			b := w.StartProducer("b", is)
			w.Leads("b")
			p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.VersionGapWait = 0 })
			w.InsertMany(20, 4)
			w.Eventually("all is published", func() bool { return w.Checkpoint().Published == 20+40+20 })
			w.Completed(60)
			for aggregate, events := range w.Inserted {
				// What came between the copy and the series that `renumber` begins is applied a
				// second time; what is new is applied at least once.
				again := seen[aggregate] - 5
				require.EqualValues(t, events+again, w.TimelineOf(aggregate).Events, aggregate)
			}
			b.End()
			p.MustEnd()
		})
	})
}
