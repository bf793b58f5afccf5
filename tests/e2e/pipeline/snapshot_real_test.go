package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// realSnapshots is a stack over sockets whose events a snapshot can read.
type realSnapshots struct {
	*realStack
	versions map[string]int
	services sync.WaitGroup
	stop     context.CancelFunc // of the producer
	settings producer.Config
	log      world.Recorder // of the producers
}

// newRealSnapshots skips the test without a real server, or if that cannot read as of a moment.
func newRealSnapshots(t *testing.T) *realSnapshots {
	t.Helper()
	if !stack.Theirs() {
		t.Skip("the embedded server is tested in virtual time")
	}
	s := &realSnapshots{realStack: newRealStack(t, false), versions: map[string]int{}}
	for name, value := range s.realStack.settings() {
		t.Setenv(name, value)
	}
	t.Setenv("SERVICE_BUS_SUBSCRIPTION", emulator.Subscription)
	t.Setenv("READ_MODEL_DATABASE", "readmodel")
	t.Setenv("SNAPSHOT_CHUNK", "100")
	var info struct {
		Array []int32 `bson:"versionArray"`
	}
	require.NoError(t, s.events.Database().RunCommand(t.Context(), bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))
	if info.Array[0] < 5 {
		t.Skipf("MongoDB %v cannot read outside of a transaction as of a cluster time", info.Array)
	}
	_, err := s.events.Indexes().CreateOne(t.Context(), driver.IndexModel{Keys: bson.D{
		{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "_id", Value: 1},
	}})
	require.NoError(t, err)
	config, err := projector.LoadConfig()
	require.NoError(t, err)
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s.services.Go(func() { _ = projector.Run(running, config, projector.Options{Instance: "projector"}) })
	t.Cleanup(func() {
		stop()
		if s.stop != nil {
			s.stop()
		}
		s.services.Wait()
	})
	return s
}

// produce starts a producer; the function that it returns stops it and waits for its end.
func (s *realSnapshots) produce(instance string, settings map[string]string) (end func()) {
	s.Helper()
	for name, value := range settings {
		s.Setenv(name, value)
	}
	var err error
	s.settings, err = producer.LoadConfig()
	require.NoError(s, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(s.Context()))
	s.stop = stop
	done := make(chan error, 1)
	s.services.Go(func() {
		done <- producer.Run(ctx, s.settings, producer.Options{
			Instance: instance, Logger: slog.New(slog.NewJSONHandler(&s.log, nil)),
		})
	})
	return func() {
		s.Helper()
		stop()
		require.NoError(s, <-done)
	}
}

// insert inserts events of 40 aggregates, in commands of up to 500.
func (s *realSnapshots) insert(n int) {
	s.Helper()
	documents := make([]any, 0, 500)
	for i := range n {
		aggregate := fmt.Sprintf("a%02d", (i*7)%40)
		s.versions[aggregate]++
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: aggregate},
			{Key: "version", Value: s.versions[aggregate]},
			{Key: "type", Value: "Counted"},
			{Key: "occurredAt", Value: "2026-01-02T03:04:05Z"},
		})
		if len(documents) == cap(documents) || i == n-1 {
			s.insertAll(documents)
			documents = documents[:0]
		}
	}
}

// insertAll inserts documents once, also while there is no primary.
func (s *realSnapshots) insertAll(documents []any) {
	s.Helper()
	_, err := s.events.InsertMany(s.Context(), documents) // the driver retries it once, and waits for a primary
	require.NoError(s, err)
}

// stepDown has the primary step down for two seconds.
func (s *realSnapshots) stepDown() {
	s.Helper()
	admin := s.events.Database().Client().Database("admin")
	require.NoError(s, admin.RunCommand(s.Context(), bson.D{{Key: "replSetStepDown", Value: 2}, {Key: "force", Value: true}}).Err())
}

// applied waits until the read model has each event once.
func (s *realSnapshots) applied() {
	s.Helper()
	s.until("the read model has every event", func() bool {
		cursor, err := s.events.Database().Client().Database("readmodel").Collection("timeline").Find(s.Context(), bson.D{})
		if err != nil {
			return false
		}
		var all []struct {
			ID     string `bson:"_id"`
			Events int    `bson:"events"`
		}
		if cursor.All(s.Context(), &all) != nil {
			return false
		}
		events := map[string]int{}
		for _, one := range all {
			events[one.ID] = one.Events
		}
		return maps.Equal(events, s.versions)
	})
}

// G1, G3: on a real server whose primary steps down, a stream begins with a snapshot beside
// writers, and an operator's snapshot of single aggregates follows; each event counts once.
func TestG3ASnapshotOverSockets(t *testing.T) {
	s := newRealSnapshots(t)
	s.insert(4000)
	end := s.produce("first", map[string]string{"START_FROM": "snapshot", "SNAPSHOT_RATE": "1500"})
	s.until("rows are published", func() bool { return s.checkpoint().Published > 300 })
	s.stepDown()
	s.insert(500)
	end()
	s.produce("second", nil)
	s.insert(500)
	s.stepDown()
	s.applied()
	require.NotNil(t, s.checkpoint(), "the checkpoint can be read")

	var out bytes.Buffer
	load := func() ([]producer.Config, error) { return []producer.Config{s.settings}, nil }
	command := func(args ...string) int {
		out.Reset()
		return producer.Execute(t.Context(), args, load, producer.Options{Instance: "desk"}, &out, &out, nil)
	}
	s.until("the snapshot is complete in the checkpoint", func() bool {
		return command("snapshot", "status") == 0 && bytes.Contains(out.Bytes(), []byte("none is being published"))
	})
	before := s.checkpoint().Published
	require.Zero(t, command("snapshot", "start", "--ids", "a01,a02", "--readers-know"), out.String())
	s.until("the rows are published", func() bool { return s.checkpoint().Published >= before+int64(s.versions["a01"]+s.versions["a02"]) })
	s.insert(40)
	s.applied()
}

// G1, G3: a stream whose oplog was truncated while no producer ran heals by a snapshot, exactly. A
// real server needs a small oplog for that: scripts/mongod.sh history.
func TestG3AStreamOverSocketsWhoseHistoryIsLostHeals(t *testing.T) {
	s := newRealSnapshots(t)
	local := s.events.Database().Client().Database("local")
	var size struct {
		Max int64 `bson:"maxSize"`
	}
	require.NoError(t, local.RunCommand(t.Context(), bson.D{{Key: "collStats", Value: "oplog.rs"}}).Decode(&size))
	if size.Max > 64<<20 {
		t.Skipf("an oplog of %d bytes is too large to be filled", size.Max)
	}
	heals := map[string]string{"ON_HISTORY_LOST": "snapshot"}
	end := s.produce("first", heals)
	s.until("a stream has begun", func() bool { return s.checkpoint().Position != "" })
	s.insert(1000)
	s.applied()
	end()
	s.insert(1000)
	entryAt := func(direction int) bson.Timestamp { // at an end of the oplog
		var entry struct {
			TS bson.Timestamp `bson:"ts"`
		}
		require.NoError(t, local.Collection("oplog.rs").FindOne(t.Context(), bson.D{},
			options.FindOne().SetSort(bson.D{{Key: "$natural", Value: direction}})).Decode(&entry))
		return entry.TS
	}
	last := entryAt(-1)
	other := s.events.Database().Collection("other")
	body := make([]byte, 1<<20)
	for n := 0; !entryAt(1).After(last); n++ {
		require.Less(t, n, 2000, "the oplog is not truncated")
		_, err := other.InsertOne(t.Context(), bson.D{{Key: "body", Value: body}})
		require.NoError(t, err)
	}
	s.produce("second", heals)
	s.insert(200)
	s.applied()
	require.Contains(t, s.log.Text(), "history is lost; a snapshot replaces it")
}
