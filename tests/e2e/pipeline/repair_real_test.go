package pipeline_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

// G3: an aggregate is repaired over sockets and on a real server, beside a producer and a
// projector; a server that cannot read as of a moment is refused, and nothing is changed.
func TestG3ARepairOverSockets(t *testing.T) {
	s := newRealStack(t, false)
	for name, value := range s.settings() {
		t.Setenv(name, value)
	}
	t.Setenv("SERVICE_BUS_SUBSCRIPTION", emulator.Subscription)
	t.Setenv("READ_MODEL_DATABASE", "readmodel")
	t.Setenv("SOURCE_DATABASE", "shop")
	t.Setenv("SOURCE_COLLECTION", "events")
	producing, err := producer.LoadConfig()
	require.NoError(t, err)
	projecting, err := projector.LoadConfig()
	require.NoError(t, err)
	_, err = s.events.Indexes().CreateOne(t.Context(), driver.IndexModel{Keys: bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}})
	require.NoError(t, err)
	run, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var services sync.WaitGroup
	services.Go(func() { _ = producer.Run(run, producing, producer.Options{Instance: "a"}) })
	services.Go(func() { _ = projector.Run(run, projecting, projector.Options{Instance: "p"}) })
	defer func() { cancel(); services.Wait() }()
	s.leads("a")
	version := 0
	insert := func(n int) {
		for range n {
			version++
			_, err := s.events.InsertOne(t.Context(), bson.D{
				{Key: "aggregateId", Value: "one"},
				{Key: "version", Value: version},
				{Key: "type", Value: "Counted"},
				{Key: "occurredAt", Value: "2026-01-02T03:04:05Z"},
			})
			require.NoError(t, err)
		}
	}
	insert(5)
	timelines := s.events.Database().Client().Database("readmodel").Collection("timeline")
	events := func() int64 {
		raw, err := timelines.FindOne(t.Context(), bson.D{{Key: "_id", Value: "one"}}).Raw()
		if err != nil {
			return 0
		}
		n, _ := raw.Lookup("events").AsInt64OK()
		return n
	}
	s.until("all is applied", func() bool { return events() == 5 })
	_, err = timelines.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "one"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "events", Value: 99}}}})
	require.NoError(t, err)
	var info struct {
		Array []int32 `bson:"versionArray"`
	}
	require.NoError(t, s.events.Database().RunCommand(t.Context(), bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))

	var out bytes.Buffer
	code := projector.Execute(t.Context(), []string{"repair", "one"}, func() (projector.Config, error) { return projecting, nil }, projector.Options{}, &out, &out, nil)
	if info.Array[0] < 5 {
		require.Equal(t, 1, code)
		require.Contains(t, out.String(), "which cannot read outside of a transaction as of a cluster time: a build needs 5.0 or later")
		require.EqualValues(t, 99, events())
		return
	}
	require.Zero(t, code, out.String())
	require.EqualValues(t, 5, events())
	insert(3)
	s.until("it goes on", func() bool { return events() == 8 })
}
