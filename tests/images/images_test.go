package images

import (
	"context"
	"errors"
	"iter"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test builds both images and runs the pipeline with them; each service is stopped and started
// again while events arrive.
func TestG1G2G3TheImagesRunThePipeline(t *testing.T) {
	root := checkout(t)
	producerImage, projectorImage := build(t, root, "producer"), build(t, root, "projector")
	for _, image := range []string{producerImage, projectorImage} {
		isAsAPlatformWantsIt(t, image)
	}

	s := serve(t)
	client, err := driver.Connect(options.Client().ApplyURI(s.Endpoint(stack.EnvMongo)))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) }()
	source, model := client.Database("shop").Collection("events"), client.Database("readmodel").Collection("timeline")

	producer := run(t, root, "producer", producerImage, append(s.Env(), "SERVICE_BUS_TOPIC="+stack.Topic,
		"MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "OPERATIONS=insert", "START_FROM=latest")...)
	projector := run(t, root, "projector", projectorImage, append(s.Env(), "SERVICE_BUS_TOPIC="+stack.Topic,
		"SERVICE_BUS_SUBSCRIPTION="+stack.Subscription, "READ_MODEL_DATABASE=readmodel", "PROJECTION=timeline")...)
	for _, c := range []*container{producer, projector} {
		users := c.users()
		require.NotEmpty(t, users)
		for _, user := range users {
			require.Equal(t, nonroot, user, "%s runs as another user", c.name)
		}
		require.Contains(t, mustDocker(t, "logs", c.name), `"`+version+`"`, "the build's version is not in the program")
	}
	until(t, "the producer leads", func() bool { return producer.status().Leads() })

	load, err := insert(t, source, func() {
		projector.terminate()
		projector.restart()
		producer.terminate()
		producer.restart()
	})
	require.NoError(t, err)
	until(t, "everything is in the read model", func() bool {
		actual, err := witness.ReadTimeline(t.Context(), model)
		return err == nil && actual.Events() >= load
	})
	until(t, "every message is completed", func() bool { return s.ServiceBus.Stats(s.Route.Out()).Active == 0 })
	producer.terminate()
	projector.terminate()

	expected := &history.Model{}
	require.NoError(t, workload.Scan(t.Context(), source, func(e workload.Stored) {
		expected.Fold(e.AggregateID, e.Version, e.Type, e.OccurredAt)
	}))
	actual, err := witness.ReadTimeline(t.Context(), model)
	require.NoError(t, err)
	require.Equal(t, load, expected.Events())
	require.Empty(t, history.Compare(expected, actual).Differences)
	require.Zero(t, s.ServiceBus.Stats(s.Route.Out()).DeadLettered)
	t.Logf("%d events, read model exact, through a stop of each service", load)
}

// isAsAPlatformWantsIt checks an image: it is small, and does not run as root.
func isAsAPlatformWantsIt(t *testing.T, image string) {
	t.Helper()
	size, err := strconv.Atoi(mustDocker(t, "image", "inspect", "-f", "{{.Size}}", image))
	require.NoError(t, err)
	require.Less(t, size, 25<<20)
	require.Equal(t, nonroot+":"+nonroot, mustDocker(t, "image", "inspect", "-f", "{{.Config.User}}", image))
}

// serve runs the servers with Azurite as the blob store, which may be missing outside CI.
func serve(t *testing.T) *stack.Stack {
	t.Helper()
	s, err := stack.New(t.Context(), stack.Options{Azurite: true})
	if errors.Is(err, azurite.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Logf("with the embedded Blob storage: %v", err)
		s, err = stack.New(t.Context(), stack.Options{})
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving errgroup.Group
	serving.Go(func() error { return s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		require.NoError(t, serving.Wait())
	})
	return s
}

// insert inserts events until work is done, and returns how many.
func insert(t *testing.T, into *driver.Collection, work func()) (inserted int64, err error) {
	t.Helper()
	done := make(chan struct{})
	var events iter.Seq[workload.Event] = func(yield func(workload.Event) bool) {
		for e := range workload.Orders(1) {
			select {
			case <-done:
				return
			default:
			}
			if !yield(e) {
				return
			}
		}
	}
	var loading errgroup.Group
	loading.Go(func() (err error) {
		inserted, err = workload.Loader{Collection: into, Rate: 200}.Run(t.Context(), events)
		return err
	})
	defer func() { // even if work ends the test
		close(done)
		err = loading.Wait()
	}()
	work()
	return
}
