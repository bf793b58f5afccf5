package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// A driver that polls every 20 s learns of a step-down, and of its end, at once.
func TestStreamingHello(t *testing.T) {
	f := serve(t, mongo.Options{})
	kinds := make(chan string, 100)
	awaited := make(chan struct{}, 1000)
	c := f.connect(t, func(o *options.ClientOptions) {
		o.SetHeartbeatInterval(20 * time.Second).SetServerMonitor(&event.ServerMonitor{
			ServerDescriptionChanged: func(e *event.ServerDescriptionChangedEvent) { kinds <- e.NewDescription.Kind },
			ServerHeartbeatSucceeded: func(e *event.ServerHeartbeatSucceededEvent) {
				if e.Awaited {
					awaited <- struct{}{}
				}
			},
		})
	})
	require.NoError(t, c.Ping(t.Context(), nil))
	require.Equal(t, "RSPrimary", <-kinds)
	began := time.Now()
	f.embedded(t).StepDown(300 * time.Millisecond)
	require.Equal(t, "RSSecondary", <-kinds)
	require.Equal(t, "RSPrimary", <-kinds)
	require.Less(t, time.Since(began), 15*time.Second) // before the next poll
	<-awaited
	require.LessOrEqual(t, len(awaited), 3, "the monitor spins")
}

func TestAwaitableHelloArguments(t *testing.T) {
	f := serve(t, mongo.Options{})
	version := field(t, f.command(t, "admin", d("hello", 1)), "topologyVersion").(bson.D)
	negative := int32(51024)
	if !f.since(t, 5, 0) {
		negative = 31373
	}
	for code, cmd := range map[int32]bson.D{
		31368:    d("hello", 1, "topologyVersion", version),
		40414:    d("hello", 1, "topologyVersion", d("counter", int64(1)), "maxAwaitTimeMS", 1),
		14:       d("hello", 1, "topologyVersion", d("processId", "x", "counter", int64(1)), "maxAwaitTimeMS", 1),
		negative: d("hello", 1, "topologyVersion", version, "maxAwaitTimeMS", -1),
		31382:    d("hello", 1, "topologyVersion", d("processId", version[0].Value, "counter", int64(99)), "maxAwaitTimeMS", 1),
	} {
		require.Equal(t, code, commandError(t, f.client.Database("admin").RunCommand(t.Context(), cmd).Err()).Code)
	}
	// with a maxTimeMS, which a client with a time-out adds, a 6.0.5 answers MaxTimeMSExpired
	f.client = f.connect(t, func(o *options.ClientOptions) { o.Timeout = nil })
	began := time.Now()
	f.command(t, "admin", d("hello", 1, "topologyVersion", version, "maxAwaitTimeMS", 50))
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	f.command(t, "admin", d("hello", 1, "topologyVersion", d("processId", bson.NewObjectID(), "counter", int64(0)), "maxAwaitTimeMS", 60_000))
}

func field(t testing.TB, doc bson.D, key string) any {
	t.Helper()
	for _, e := range doc {
		if e.Key == key {
			return e.Value
		}
	}
	require.Fail(t, "no field", key)
	return nil
}
