package sockets_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// readsThePast reports whether the server can read as of a moment.
func (s *realStack) readsThePast() bool {
	s.Helper()
	version, err := mongodb.ServerVersion(s.Context(), s.client)
	require.NoError(s, err)
	return version.Major >= 5
}

// G3: an aggregate is repaired over sockets and on a real server, beside a producer and a
// projector; a server that cannot read as of a moment is refused, and nothing is changed.
func TestG3ARepairOverSockets(t *testing.T) {
	s := newRealStack(t, false)
	producing, projecting := s.configured()
	world.CreateIndex(t, s.events, "aggregateId", "version")
	s.run(producing, producer.Options{}, projecting, projector.Options{})
	s.leads("a")
	s.commit(5, 1)
	s.until("all is applied", func() bool { return s.holds("timeline") })
	timelines := s.model.Collection("timeline")
	_, err := timelines.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "a00"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "events", Value: 99}}}})
	require.NoError(t, err)

	var out bytes.Buffer
	code := projector.Execute(t.Context(), []string{"repair", "a00"}, func() (projector.Config, error) { return projecting, nil }, projector.Options{}, &out, &out, nil)
	if !s.readsThePast() {
		require.Equal(t, 1, code)
		require.Contains(t, out.String(), "which cannot read outside of a transaction as of a cluster time: a build needs 5.0 or later")
		unchanged, err := world.CountedIn(t.Context(), timelines)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"a00": 99}, unchanged)
		return
	}
	require.Zero(t, code, out.String())
	require.True(t, s.holds("timeline"))
	s.commit(3, 1)
	s.until("it goes on", func() bool { return s.holds("timeline") })
}

// newRealSnapshots returns a stack with a projector, whose events a snapshot can read. It skips the
// test without a real server, or if that cannot read as of a moment.
func newRealSnapshots(t *testing.T) *realStack {
	t.Helper()
	if !stack.Theirs() {
		t.Skip("the embedded server is tested in virtual time")
	}
	s := newRealStack(t, false)
	s.settings["SNAPSHOT_CHUNK"] = "100"
	if !s.readsThePast() {
		t.Skip("this MongoDB cannot read outside of a transaction as of a cluster time")
	}
	world.CreateIndex(t, s.events, "aggregateId", "version", "_id")
	s.project()
	return s
}

// stepDown has the primary step down for two seconds.
func (s *realStack) stepDown() {
	s.Helper()
	require.NoError(s, s.client.Database("admin").RunCommand(s.Context(), bson.D{{Key: "replSetStepDown", Value: 2}, {Key: "force", Value: true}}).Err())
}

// allApplied waits until the read model has each event once.
func (s *realStack) allApplied() {
	s.Helper()
	s.until("the read model has every event", func() bool { return s.holds("timeline") })
}

// G1, G3: on a real server whose primary steps down, a stream begins with a snapshot beside
// writers, and an operator's snapshot of single aggregates follows; each event counts once.
func TestG3ASnapshotOverSockets(t *testing.T) {
	s := newRealSnapshots(t)
	s.commit(4000, 40)
	s.settings["START_FROM"], s.settings["SNAPSHOT_RATE"] = "snapshot", "1500"
	settings, _ := s.configured()
	first := s.start("first")
	s.until("rows are published", func() bool { return s.checkpoint().Published > 300 })
	s.stepDown()
	s.commit(500, 40)
	first.end()
	s.start("second")
	s.commit(500, 40)
	s.stepDown()
	s.allApplied()
	require.NotNil(t, s.checkpoint(), "the checkpoint can be read")

	var out bytes.Buffer
	load := func() ([]producer.Config, error) { return []producer.Config{settings}, nil }
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
	s.commit(40, 40)
	s.allApplied()
}

// G1, G3: a stream whose oplog was truncated while no producer ran heals by a snapshot, exactly. A
// real server needs a small oplog for that: scripts/mongod.sh history.
func TestG3AStreamOverSocketsWhoseHistoryIsLostHeals(t *testing.T) {
	s := newRealSnapshots(t)
	local := s.client.Database("local")
	var size struct {
		Max int64 `bson:"maxSize"`
	}
	require.NoError(t, local.RunCommand(t.Context(), bson.D{{Key: "collStats", Value: "oplog.rs"}}).Decode(&size))
	if size.Max > 64<<20 {
		t.Skipf("an oplog of %d bytes is too large to be filled", size.Max)
	}
	s.settings["ON_HISTORY_LOST"] = "snapshot"
	first := s.start("first")
	s.until("a stream has begun", func() bool { return s.checkpoint().Position != "" })
	s.commit(1000, 40)
	s.allApplied()
	first.end()
	s.commit(1000, 40)
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
	second := s.start("second")
	s.commit(200, 40)
	s.allApplied()
	require.Contains(t, second.log.Text(), "history is lost; a snapshot replaces it")
}
