package projector_test

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// repairable is a timeline that cannot apply events of the type Poison before it is fixed. Events
// of the type Touch count only if there is a document.
type repairable struct {
	projection.Timeline
	fixed *atomic.Bool
}

func (repairable) Name() string { return "repairable" }

func (m repairable) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == "Poison" && !m.fixed.Load() {
		return nil, projection.Permanent(errors.New("no rule for it"))
	}
	if e.Type == "Touch" {
		return []projection.Write{projection.UpdateExisting("timeline", e.Aggregate, projection.Inc("events", 1))}, nil
	}
	return m.Timeline.Project(e)
}

// ledger writes two collections for each event: a line of its own, and a total that every aggregate
// feeds. Its guard is a record of positions.
type ledger struct{ fixed *atomic.Bool }

func (ledger) Name() string { return "ledger" }

func (l ledger) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == "Poison" && !l.fixed.Load() {
		return nil, projection.Permanent(errors.New("no rule for it"))
	}
	return []projection.Write{
		projection.Replace("lines", e.Document().Lookup("_id").StringValue(), e.Document()),
		projection.Update("totals", "all", projection.Inc("events", 1)),
	}, nil
}

// shape is a projection of one of the two kinds.
type shape struct {
	name    string // of the projection
	guards  string // the collection with the guards
	fixed   *atomic.Bool
	project projection.Projection
	adjust  func(*projector.Config) // the settings; nil leaves them as they are
	// applied returns how many events of an aggregate took effect.
	applied func(w *world.World, aggregate string) int
}

// shapes returns a projection with one document per aggregate, and one with a record of positions.
func shapes() []shape {
	one, several := &atomic.Bool{}, &atomic.Bool{}
	return []shape{
		{
			name: "repairable", guards: "timeline", fixed: one, project: repairable{fixed: one},
			applied: func(w *world.World, aggregate string) int { return int(w.TimelineOf(aggregate).Events) },
		},
		{
			name: "ledger", guards: "ledger_positions", fixed: several, project: ledger{fixed: several},
			applied: func(w *world.World, aggregate string) int {
				n, err := w.Client.Database(world.ReadModel).Collection("lines").CountDocuments(w.Context(), bson.D{{Key: "aggregateId", Value: aggregate}})
				require.NoError(w, err)
				return int(n)
			},
		},
	}
}

// settings makes a projector run the shape.
func (s shape) settings(c *projector.Config, o *projector.Options) {
	runs(s.project)(c, o)
	if s.adjust != nil {
		s.adjust(c)
	}
}

// correct returns the shape with code that is fixed, and its collections.
func (s shape) correct() shape {
	fixed := &atomic.Bool{}
	fixed.Store(true)
	if s.name == "repairable" {
		s.project = repairable{fixed: fixed}
	} else {
		s.project = ledger{fixed: fixed}
	}
	return s
}

// before returns a projection that calls f with each event before it projects it, and fails with
// the error of f.
func before(p projection.Projection, f func(projection.Event) error) projection.Projection {
	b := documents{p.Name(), func(e projection.Event) ([]projection.Write, error) {
		if err := f(e); err != nil {
			return nil, err
		}
		return p.Project(e)
	}}
	if one, ok := p.(projection.OneDocument); ok {
		return oneDocument{b, one.Collection()}
	}
	return b
}

// documents is a projection that does not declare its collections.
type documents struct {
	name    string
	project func(projection.Event) ([]projection.Write, error)
}

func (d documents) Name() string { return d.name }

func (d documents) Project(e projection.Event) ([]projection.Write, error) { return d.project(e) }

// oneDocument is a projection with one document per aggregate.
type oneDocument struct {
	documents
	collection string
}

func (d oneDocument) Collection() string { return d.collection }

// keeps returns a projection with one document per aggregate that has the one write of each event.
func keeps(collection string, write func(projection.Event) projection.Write) projection.Projection {
	return oneDocument{documents{collection, func(e projection.Event) ([]projection.Write, error) {
		return []projection.Write{write(e)}, nil
	}}, collection}
}

// parkedRecord is the record of a parking.
type parkedRecord struct {
	MessageID   string `bson:"messageId"`
	Position    string `bson:"position"`
	Reason      string `bson:"reason"`
	Description string `bson:"description"`
	Session     string `bson:"session"`
	Later       int    `bson:"later"`
}

// read returns a document of the read model, or nil if it does not exist.
func read(w *world.World, collection, id string) bson.Raw {
	w.Helper()
	doc, err := w.Client.Database(world.ReadModel).Collection(collection).FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	if errors.Is(err, driver.ErrNoDocuments) {
		return nil
	}
	require.NoError(w, err)
	return doc
}

// inJSON returns a document of the read model as Extended JSON, or "" if it does not exist.
func inJSON(w *world.World, collection, id string) string {
	w.Helper()
	doc := read(w, collection, id)
	if doc == nil {
		return ""
	}
	text, err := bson.MarshalExtJSON(doc, false, false)
	require.NoError(w, err)
	return string(text)
}

// guard returns an aggregate's guard in the database; nil without one.
func guard(w *world.World, collection, aggregate string) bson.Raw {
	w.Helper()
	doc := read(w, collection, aggregate)
	if guard, ok := doc.Lookup(projection.GuardField).DocumentOK(); ok {
		return guard
	}
	return doc
}

// parked returns an aggregate's record; zero if it is not parked.
func parked(w *world.World, collection, aggregate string) (r parkedRecord) {
	w.Helper()
	if value := guard(w, collection, aggregate).Lookup("parked"); value.Type != 0 {
		require.NoError(w, value.Unmarshal(&r))
	}
	return r
}

func deadLettered(w *world.World, n int) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%d dead letters", n), func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered >= n })
}

// deadLetters returns the content of the dead-letter queue, in its order: aggregate/version, or
// what is known of them, and the reason.
func deadLetters(w *world.World) (all []string) {
	w.Helper()
	receiver := deadLetterReceiver(w, azservicebus.ReceiveModePeekLock)
	messages, err := receiver.PeekMessages(w.Context(), 1000, nil)
	require.NoError(w, err)
	require.NoError(w, receiver.Close(w.Context()))
	for _, m := range messages {
		c := envelope.Partial(m)
		all = append(all, fmt.Sprintf("%s/%d %s", c.Aggregate, c.Version, *m.DeadLetterReason))
	}
	return all
}

func deadLetterReceiver(w *world.World, mode azservicebus.ReceiveMode) *azservicebus.Receiver {
	w.Helper()
	receiver, err := w.BusClient.NewReceiverForSubscription(world.Topic, world.Subscription,
		&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: mode})
	require.NoError(w, err)
	return receiver
}

// deadLetterFirst moves the first message of a session to the dead-letter queue.
func deadLetterFirst(w *world.World, session, reason string) {
	w.Helper()
	receiver, err := w.BusClient.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, session, nil)
	require.NoError(w, err)
	messages, err := receiver.ReceiveMessages(w.Context(), 1, nil)
	require.NoError(w, err)
	require.NoError(w, receiver.DeadLetterMessage(w.Context(), messages[0], &azservicebus.DeadLetterOptions{Reason: &reason}))
	require.NoError(w, receiver.Close(w.Context()))
}

// messageID returns the id of an event's message.
func messageID(c envelope.Change) string { return envelope.MessageID(c.Stream, c.Token) }
