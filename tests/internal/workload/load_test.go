package workload_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

func source(t *testing.T, configure func(*options.ClientOptions)) (*mongo.Server, *driver.Collection) {
	t.Helper()
	server, uri := mongo.Start(t, mongo.Options{})
	o := options.Client().ApplyURI(uri)
	configure(o)
	client, err := driver.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	return server, client.Database("shop").Collection("events")
}

func stored(t *testing.T, c *driver.Collection) []string {
	t.Helper()
	cursor, err := c.Find(t.Context(), bson.D{}) // the embedded server scans in insertion order
	require.NoError(t, err)
	var all []workload.Stored
	require.NoError(t, cursor.All(t.Context(), &all))
	var names []string
	for _, s := range all {
		names = append(names, fmt.Sprintf("%s/%d %s", s.AggregateID, s.Version, s.Type))
	}
	return names
}

func names(events []workload.Event) []string {
	var names []string
	for _, e := range events {
		names = append(names, fmt.Sprintf("%s/%d %s", e.AggregateID, e.Version, e.Type))
	}
	return names
}

// The driver's own retry is switched off, so that the loader has to retry: the last batch is
// written and its answer is lost. All events are inserted in order, once, and each is announced.
func TestLoadNeverInsertsTwiceWhenAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	server, c := source(t, func(o *options.ClientOptions) { o.SetRetryWrites(false) })
	events := generate(1, 1020)
	var announced []workload.Event
	l := workload.Loader{Collection: c, Sending: func(batch []workload.Event, _ time.Time) {
		if announced = append(announced, batch...); len(announced) == len(events) {
			server.LoseReplies("insert", 1)
		}
	}}
	n, err := l.Run(t.Context(), slices.Values(events))
	require.NoError(t, err)
	require.EqualValues(t, 1020, n)
	require.Equal(t, events, announced)
	require.Equal(t, names(events), stored(t, c))
}

func TestLoadWaitsUntilEventsAreAllowed(t *testing.T) {
	t.Parallel()
	_, c := source(t, func(*options.ClientOptions) {})
	ctx, cancel := context.WithCancelCause(t.Context())
	var asked atomic.Int64
	l := workload.Loader{Collection: c, Allowed: func() int64 {
		if asked.Add(1) == 5 {
			cancel(context.Canceled)
		}
		return 7
	}}
	n, err := l.Run(ctx, slices.Values(generate(1, 20)))
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 7, n)
}

// The end is known although no more events may be inserted: a load must not wait for a permission
// that it does not need.
func TestLoadEndsWhenExactlyAllIsAllowed(t *testing.T) {
	t.Parallel()
	_, c := source(t, func(*options.ClientOptions) {})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l := workload.Loader{Collection: c, Allowed: func() int64 { return 20 }}
	n, err := l.Run(ctx, slices.Values(generate(1, 20)))
	require.NoError(t, err)
	require.EqualValues(t, 20, n)
}
