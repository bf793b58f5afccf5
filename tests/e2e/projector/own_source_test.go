package projector_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// intoTheSource mirrors a collection into one of the same name.
func intoTheSource(c *projector.Config, _ *projector.Options) {
	c.Projection, c.Database, c.MirrorCollection = "mirror", "shop", "events"
}

// A mirror into its own source would project its own writes without end. It is refused before it
// writes anything.
func TestAMirrorOfItsOwnSourceIsRefused(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.AggregateIDPath = "_id" })
		w.Leads("a")
		p := w.StartProjector(intoTheSource)
		w.Insert("a0")
		err := refusal(w, p)
		require.ErrorContains(t, err, "1 setting must be fixed")
		require.ErrorContains(t, err, "shop.events is the watched collection itself")
		raw, err := w.Events.FindOne(w.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		require.Zero(t, raw.Lookup("_sluice").Type, "nothing was written to the source")
		a.End()
	})
}

// If a deployment refuses to answer for one event, it is asked again with the next: it does not
// count as another deployment.
func TestG6ADeploymentThatRefusesToAnswerIsAskedAgain(t *testing.T) {
	for name, code := range map[string]int{"history lost": 286, "not authorised": 13} {
		t.Run(name, func(t *testing.T) {
			o := settings(0)
			o.Since = "7.0" // from 7.0 on a projector that continues comes to rest: a replacement by an equal document is no change
			world.InVirtualTime(t, o, func(w *world.World) {
				a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.AggregateIDPath = "_id" })
				w.Leads("a")
				p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
					intoTheSource(c, o)
					c.MirrorFields = []string{"aggregateId"}
				})
				w.Pass(time.Second) // it has counted what is parked
				failCommands(w, 1, "aggregate", bson.D{{Key: "errorCode", Value: code}, {Key: "appName", Value: "sluice-projector"}})
				w.Insert("a0")
				w.Pass(10 * time.Second)
				w.Insert("a1")
				err := refusal(w, p)
				require.ErrorContains(w, err, "shop.events is the watched collection itself")
				raw, err := w.Events.FindOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a1"}}).Raw()
				require.NoError(w, err)
				require.NotZero(w, raw.Lookup("version").Type, "the source was overwritten")
				a.End()
			})
		})
	}
}

// The same names on another deployment are another collection.
func TestAMirrorOfTheSameNameElsewhereIsAccepted(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		elsewhere, way := mongo.New(mongo.Options{}), netpipe.Listen("mongo:27017")
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		var serving sync.WaitGroup
		serving.Go(func() { _ = elsewhere.Run(ctx, way) })
		defer serving.Wait()
		defer stop()
		other, err := driver.Connect(options.Client().ApplyURI(w.MongoURI()).SetDialer(way))
		require.NoError(t, err)
		defer func() { _ = other.Disconnect(context.WithoutCancel(t.Context())) }()

		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.AggregateIDPath = "_id" })
		w.Leads("a")
		p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
			intoTheSource(c, o)
			o.Mongo = world.MongoOptions(way)
		})
		w.Insert("a0")
		w.Completed(1)
		n, err := other.Database("shop").Collection("events").CountDocuments(w.Context(), bson.D{})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		p.MustEnd()
		a.End()
	})
}

// If the settings name the source, names are enough.
func TestAMirrorOfItsOwnSourceIsRefusedByItsSettings(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		same := w.OperateProjector(func(c *projector.Config, o *projector.Options) { intoTheSource(c, o) }, "status")
		require.Equal(t, 2, same.Code)
		require.Contains(t, same.Err, "shop.events is the watched collection itself")
		apart := w.OperateProjector(func(c *projector.Config, o *projector.Options) {
			intoTheSource(c, o)
			c.SourceMongoURI = "mongodb://elsewhere:27017/?replicaSet=rs0"
		}, "status")
		require.Equal(t, 0, apart.Code, apart.Err)
	})
}
