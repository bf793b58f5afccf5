package projector_test

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// recurses is the environment variable with which the test's program is a projector of recursive.
const recurses = "RUN_RECURSIVE_PROJECTOR"

func TestMain(m *testing.M) {
	if os.Getenv(recurses) != "" {
		debug.SetMaxStack(8 << 20)
		projector.Main(recursive{})
	}
	os.Exit(m.Run())
}

// recursive is a timeline that calls itself without end for events of the type Recursive.
type recursive struct{ projection.Timeline }

func (recursive) Name() string { return "recursive" }

func (p recursive) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == "Recursive" {
		writes, err := p.Project(e)
		return append(writes, writes...), err
	}
	return p.Timeline.Project(e)
}

// G5: a recursion without end, which Go cannot recover from, ends projectors' processes until its
// event is found; then its aggregate is parked, and the process that runs applies everything else.
func TestG5ARecursionWithoutEndParksItsAggregate(t *testing.T) {
	virtualtime.Real(t)
	s, err := stack.New(t.Context(), stack.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("run the stack: %v", err)
		}
	})
	client, err := driver.Connect(options.Client().ApplyURI(s.Endpoint(stack.EnvMongo)))
	require.NoError(t, err)
	bus, err := azservicebus.NewClientFromConnectionString(s.Endpoint(stack.EnvServiceBus), nil)
	require.NoError(t, err)
	defer func() {
		_ = bus.Close(ctx)
		_ = client.Disconnect(ctx)
		cancel()
		serving.Wait()
	}()
	sender, err := bus.NewSender(stack.Topic, nil)
	require.NoError(t, err)
	in := func(aggregate string, n int, eventType string) {
		c := event(aggregate, n, eventType)
		c.Session = envelope.Buckets(1).Session(aggregate)
		message, err := envelope.Encode(c, envelope.JSON)
		require.NoError(t, err)
		require.NoError(t, sender.SendMessage(t.Context(), message, nil))
	}
	for n := range 10 {
		in(fmt.Sprint("good-", n), 1, "T")
	}
	in("bad", 1, "T")
	in("bad", 2, "Recursive")
	in("bad", 3, "T")
	for n := range 10 {
		in(fmt.Sprint("good-", n), 2, "T")
	}

	program, err := os.Executable()
	require.NoError(t, err)
	var ends []string
	replica := &child.Slot{
		Name: "projector-1", Program: program, LogDir: t.TempDir(),
		Env:     append(s.Settings(), recurses+"=1", "WATCH_PROCESSES=true", "READ_MODEL_DATABASE=readmodel", "SERVICE_BUS_CONNECTIONS=1"),
		OnEvent: func(event string) { ends = append(ends, event) },
	}
	running, stop := context.WithCancel(t.Context())
	var slot sync.WaitGroup
	slot.Go(func() {
		if err := replica.Run(running); err != nil {
			t.Errorf("run the projector: %v", err)
		}
	})
	require.Eventually(t, func() bool {
		stats := s.ServiceBus.Stats(s.Route.Out())
		return stats.Completed >= 21 && stats.DeadLettered == 2
	}, 2*time.Minute, 50*time.Millisecond)
	stop()
	slot.Wait()
	require.Len(t, ends, 4)
	for _, end := range ends {
		require.Contains(t, end, "exit code 2") // of the Go runtime
	}
	for _, aggregate := range []string{"good-0", "good-9"} {
		var document struct{ Events int }
		require.NoError(t, client.Database("readmodel").Collection("timeline").FindOne(ctx, bson.D{{Key: "_id", Value: aggregate}}).Decode(&document))
		require.Equal(t, 2, document.Events, aggregate)
	}
}
