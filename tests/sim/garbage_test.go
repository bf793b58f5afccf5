package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// litter sends undecodable messages of a stranger among those of the stream, one after the other.
func (w *world) litter(ctx context.Context) {
	if len(w.plan.Garbage) == 0 {
		return
	}
	client, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString("bus:5672"), busOptions(network.NewLink(w.busHub)))
	require.NoError(w, err)
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	for _, g := range w.plan.Garbage {
		pause(ctx, g.At.Duration-time.Since(w.began))
		w.trace.add("%s", g)
		if g.Form == plan.Unnamed {
			w.sendUnnamed(ctx, client, g)
		} else {
			w.sendParking(ctx, client, g)
		}
	}
}

// sendUnnamed sends garbage that names no aggregate into the session of an aggregate whose id is
// too long to be the session's.
func (w *world) sendUnnamed(ctx context.Context, client *azservicebus.Client, planned plan.Garbage) {
	random, aggregate := rand.New(rand.NewPCG(planned.Random, 0xd3)), plan.FullName(planned.Aggregate)
	for version := range int64(10) {
		if version == planned.Before {
			g := checker.Garbage{
				MessageID: planned.ID, Session: w.plan.Settings.SessionKey.Session(aggregate), Reason: string(envelope.ReasonMissingProperty),
			}
			w.sendGarbage(ctx, client, g, &azservicebus.Message{Body: []byte("garbage")})
		}
		w.insert(ctx, aggregate, version+1, "Fine")
		pause(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond))))
	}
}

// sendParking sends garbage that names an aggregate of the workload: by its session alone, if it
// has one of its own, or as an event whose body is broken. The aggregate must have events, and no
// other fault.
func (w *world) sendParking(ctx context.Context, client *azservicebus.Client, planned plan.Garbage) {
	aggregate := plan.FullName(planned.Aggregate)
	if !w.record.Sound(aggregate) {
		w.trace.add("%s has no events yet, or something else is wrong in it", planned.Aggregate)
		return
	}
	g := checker.Garbage{MessageID: planned.ID, Aggregate: aggregate, Session: w.plan.Settings.SessionKey.Session(aggregate)}
	if planned.Form == plan.Unsaid {
		if g.Reason = string(envelope.ReasonMissingProperty); g.Session != g.Aggregate {
			g.Aggregate = "" // aggregates share the session
		}
		w.sendGarbage(ctx, client, g, &azservicebus.Message{Body: []byte("garbage")})
		return
	}
	g.Stream = streamOf(w.collectionOf(g.Aggregate)) // one of those that carry it
	g.Position, g.Reason = w.behindLast(g.Stream, g.Aggregate), string(envelope.ReasonUndecodableBody)
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}})
	require.NoError(w, err)
	m, err := envelope.Encode(envelope.Change{
		Stream: g.Stream, Token: g.MessageID, Position: g.Position, Epoch: 1, Aggregate: g.Aggregate,
		Operation: envelope.Insert, Type: "Fine", Body: body,
	}, envelope.JSON)
	require.NoError(w, err)
	m.Body = m.Body[:len(m.Body)/2]
	w.sendGarbage(ctx, client, g, m)
}

// behindLast returns a position right behind the last message of a stream that the broker has
// accepted for an aggregate.
func (w *world) behindLast(stream, aggregate string) string {
	return max("82", w.record.Last(stream, aggregate)) + "00"
}

// sendGarbage sends a message until the broker has it.
func (w *world) sendGarbage(ctx context.Context, client *azservicebus.Client, g checker.Garbage, m *azservicebus.Message) {
	m.MessageID, m.SessionID, m.PartitionKey = &g.MessageID, &g.Session, &g.Session
	w.trace.add("a stranger sends %s to session %.20s: %s", g.MessageID, g.Session, g.Reason)
	w.record.Send(g)
	for ctx.Err() == nil {
		sender, err := client.NewSender(topic, nil) // one whose AMQP session was ended may never recover
		require.NoError(w, err)
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = sender.SendMessage(attempt, m, nil)
		cancel()
		_ = sender.Close(context.WithoutCancel(ctx))
		if err == nil {
			return
		}
		pause(ctx, time.Second)
	}
}
