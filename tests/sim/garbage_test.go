package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
)

// litter has a stranger send messages that nobody can read among those of the stream, one after the other.
func (w *world) litter(ctx context.Context, random *rand.Rand) {
	client, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString("bus:5672"), busOptions(network.NewLink(w.busHub)))
	require.NoError(w, err)
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	for n := range w.settings.Garbage {
		pause(ctx, time.Duration(random.Int64N(int64(w.settings.Length)/int64(w.settings.Garbage))))
		if random.IntN(3) == 0 {
			w.sendNobodys(ctx, client, random, n)
		} else {
			w.sendParking(ctx, client, random, n)
		}
	}
}

// sendNobodys sends garbage that names no aggregate into the session of one whose id is too long to be the session's.
func (w *world) sendNobodys(ctx context.Context, client *azservicebus.Client, random *rand.Rand, n int) {
	aggregate := fmt.Sprintf("long-%d-%s", n, strings.Repeat("x", 128))
	at, total := random.Int64N(10), int64(10)
	for version := range total {
		if version == at {
			g := checker.Garbage{MessageID: fmt.Sprintf("garbage-%d", n), Session: w.settings.SessionKey.Session(aggregate), Reason: string(envelope.ReasonMissingProperty)}
			w.sendGarbage(ctx, client, g, &azservicebus.Message{Body: []byte("garbage")})
		}
		w.insert(ctx, aggregate, version+1, "Fine")
		pause(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond))))
	}
}

// sendParking sends garbage that names an aggregate of the workload: by its session alone, where it has one to itself, or as an
// event whose body is broken.
func (w *world) sendParking(ctx context.Context, client *azservicebus.Client, random *rand.Rand, n int) {
	g := checker.Garbage{MessageID: fmt.Sprintf("garbage-%d", n)}
	if g.Aggregate = w.anyAggregate(random); g.Aggregate == "" {
		return
	}
	g.Session = w.settings.SessionKey.Session(g.Aggregate)
	if random.IntN(2) == 0 {
		if g.Reason = string(envelope.ReasonMissingProperty); g.Session != g.Aggregate {
			g.Aggregate = "" // aggregates share the session
		}
		w.sendGarbage(ctx, client, g, &azservicebus.Message{Body: []byte("garbage")})
		return
	}
	g.Position, g.Reason = w.behindLast(g.Aggregate), string(envelope.ReasonUndecodableBody)
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}})
	require.NoError(w, err)
	m, err := envelope.Encode(envelope.Change{
		Stream: w.streams()[w.streamOf(g.Aggregate)], Token: g.MessageID, Position: g.Position, Epoch: 1, Aggregate: g.Aggregate,
		Operation: envelope.Insert, Type: "Fine", Body: body,
	}, envelope.JSON)
	require.NoError(w, err)
	m.Body = m.Body[:len(m.Body)/2]
	w.sendGarbage(ctx, client, g, m)
}

// anyAggregate is one that has events and in which nothing else is wrong; empty when there is none.
func (w *world) anyAggregate(random *rand.Rand) string {
	committed := w.record.Run().Committed
	if len(committed) == 0 {
		return ""
	}
	name := committed[random.IntN(len(committed))].Aggregate
	if w.record.Wrong(name) {
		return ""
	}
	return name
}

// behindLast is a position right behind the last message that the broker has accepted of an aggregate.
func (w *world) behindLast(aggregate string) string {
	return max("82", w.record.Last(aggregate)) + "00"
}

// sendGarbage sends a message until the broker has it.
func (w *world) sendGarbage(ctx context.Context, client *azservicebus.Client, g checker.Garbage, m *azservicebus.Message) {
	m.MessageID, m.SessionID, m.PartitionKey = &g.MessageID, &g.Session, &g.Session
	w.trace.add("a stranger sends %s to session %.20s: %s", g.MessageID, g.Session, g.Reason)
	w.record.Send(g)
	sender, err := client.NewSender(topic, nil)
	require.NoError(w, err)
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }()
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := sender.SendMessage(attempt, m, nil)
		cancel()
		if err == nil {
			return
		}
		pause(ctx, time.Second)
	}
}
