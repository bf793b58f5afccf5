package world

import (
	"context"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// Producer is a producer in this process, with connections of its own.
type Producer struct {
	Stop context.CancelFunc
	Done chan error // gets the result of Run; then it is closed
	Log  *Recorder
	// BusPlug, MongoPlug and BlobPlug connect it to the servers.
	BusPlug, MongoPlug, BlobPlug *Plug

	w *World
}

// ProducerConfig returns the default settings of a producer in tests: the collection shop.events,
// to Topic.
func (w *World) ProducerConfig() producer.Config {
	return producer.Config{
		MongoURI: w.MongoURI(), Database: sourceDatabase, Collection: sourceCollection, Stream: "shop.events",
		ServiceBus: azure.ServiceBus{ConnectionString: servicebus.ConnectionString(busHost)}, Topic: Topic,
		Blob: azure.Blob{ConnectionString: blob.ConnectionString(BlobHost)}, CheckpointContainer: "sluice",
		StartFrom: "latest", OnHistoryLost: "fail", OnCollectionReplaced: "fail", SnapshotChunk: 1000, SnapshotReadPreference: "primary",
		Operations:      []envelope.Operation{envelope.Insert, envelope.Replace}, // the source is an event log
		AggregateIDPath: "aggregateId", EventTypePath: "type", VersionPath: "version",
		FullDocument: "updateLookup", BeforeChange: "whenAvailable", OnUnknownAggregate: "fail",
		LeaseDuration: 15 * time.Second, HeartbeatInterval: time.Second, FenceAfter: 2500 * time.Millisecond,
		TakeoverAfter: 4 * time.Second, StandbyPoll: 500 * time.Millisecond, LeaseTakeover: "break",
		PublishLanes: 4, PublishLanesMax: 16, BatchScope: "auto", BatchMessages: 100, MessageFormat: "json",
		Pack: "off", PackEvents: 20, PackBytes: 60_000,
		OnOversize: "fail", OnRefused: "fail", RefusedAfter: 5 * time.Minute, ClaimContainer: "claim-checks",
		MaxInFlightEvents: 1000, MaxInFlightBytes: 1 << 20, StallAfter: time.Minute, ShutdownTimeout: 20 * time.Second,
	}
}

// AllOperations makes a producer publish updates and deletes as well. The collection must keep
// images for that: see [World.KeepImages].
func AllOperations(c *producer.Config, _ *producer.Options) {
	c.Operations = []envelope.Operation{envelope.Insert, envelope.Update, envelope.Replace, envelope.Delete}
}

// StartProducer runs a producer; change adjusts its settings.
func (w *World) StartProducer(instance string, change func(*producer.Config, *producer.Options)) *Producer {
	w.Helper()
	config := w.ProducerConfig()
	require.NoError(w, config.Validate())
	return w.startProducer(instance, []producer.Config{config}, change)
}

// StartStreams runs a producer of several streams.
func (w *World) StartStreams(instance string, configs []producer.Config) *Producer {
	w.Helper()
	return w.startProducer(instance, configs, nil)
}

func (w *World) startProducer(instance string, configs []producer.Config, change func(*producer.Config, *producer.Options)) *Producer {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	p := &Producer{
		Stop: cancel, Done: make(chan error, 1), Log: &Recorder{},
		BusPlug: &Plug{}, MongoPlug: &Plug{}, BlobPlug: &Plug{}, w: w,
	}
	o := producer.Options{
		Logger:     slog.New(slog.NewJSONHandler(p.Log, nil)),
		Instance:   instance,
		ServiceBus: BusOptions(p.BusPlug.Dialer(w.BusNet)),
		Blob:       BlobOptions(p.BlobPlug.Transport(w.Blob.Transport())),
		Mongo:      MongoOptions(p.MongoPlug.Dialer(w.MongoNet)),
		Store:      w.Store,
	}
	if change != nil {
		change(&configs[0], &o)
	}
	go func() {
		p.Done <- producer.Run(ctx, configs[0], o, configs[1:]...)
		close(p.Done)
	}()
	w.Producers = append(w.Producers, p)
	return p
}

// End asks the producer to stop and waits for it.
func (p *Producer) End() {
	p.w.Helper()
	p.Stop()
	require.NoError(p.w, <-p.Done)
}

// Failed waits until the producer has ended on its own, and returns its error.
func (p *Producer) Failed() (err error) {
	p.w.Helper()
	p.w.Eventually("the producer ends on its own", func() bool {
		select {
		case err = <-p.Done:
			return true
		default:
			return false
		}
	})
	require.Error(p.w, err)
	return err
}

// Vanish cuts all connections of the producer at once, as if the process were killed; End must
// still be called.
func (p *Producer) Vanish() {
	p.BusPlug.Pull()
	p.MongoPlug.Pull()
	p.BlobPlug.Pull()
}

// ComeBack undoes Vanish.
func (p *Producer) ComeBack() {
	p.BusPlug.PlugIn()
	p.MongoPlug.PlugIn()
	p.BlobPlug.PlugIn()
}

// kill ends a producer that the test may have ended before.
func (p *Producer) kill() {
	p.Vanish()
	p.Stop()
	for range p.Done { // closed at its end
	}
}
