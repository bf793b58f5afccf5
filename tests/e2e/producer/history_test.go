package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G6: if a deployment opens the stream behind an invalidate and then reports lost history, each
// time, the second error is believed: the first may be caused by the driver, which resumes there
// although it must not.
func TestG6HistoryLostBehindAnInvalidateIsReported(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		inserts := func(c *producer.Config, _ *producer.Options) { c.Operations = []envelope.Operation{envelope.Insert} }
		a := startAndPublish(w, "a", inserts, 10, 2)
		const changeStreamHistoryLost = 286
		w.FailMongo(1_000_000, changeStreamHistoryLost, "getMore")
		require.NoError(t, w.Events.Drop(w.Context()))
		require.ErrorContains(t, a.Failed(), "changes in between may be lost (ON_HISTORY_LOST=fail). "+
			"To have the documents of the collection published in their place: ON_HISTORY_LOST=snapshot. To continue from now without them: ON_HISTORY_LOST=latest: ")
	})
}

// A beginning in the past is fixed as soon as the stream is open, like any other: the checkpoint
// gets its token before anything is published.
func TestG1ABeginningInThePastIsKeptAtOnce(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		begin := time.Now()
		w.InsertMany(30, 3)
		a := w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
			c.StartFrom, c.StartAt = "timestamp", begin
		})
		a.BusPlug.Pull()
		w.Leads("a")
		require.NotContains(t, a.Log.Text(), "returns no resume token")
		a.BusPlug.PlugIn()
		w.Published()
		a.End()
	})
}

// G6: the error for a beginning that the oplog does not reach back to names the setting, since
// there is no checkpoint.
func TestG6ABeginningBeforeTheOplogIsReported(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
		begin := time.Now()
		w.Pass(2 * time.Second)
		w.InsertMany(500, 2)
		err := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.StartFrom, c.StartAt = "timestamp", begin }).Failed()
		require.ErrorContains(t, err, "START_AT")
		require.NotContains(t, err.Error(), "checkpoint")
		require.Empty(t, w.Took())
	})
}

// forgotten leaves a checkpoint at an event that the oplog no longer contains, on a server that
// does not report that: the collection has no newer change than the lost ones.
func forgotten(w *world.World) {
	w.Helper()
	a := startAndPublish(w, "a", nil, 10, 2)
	checkpointed(w, 10)
	a.MongoPlug.Pull() // so that no later token is written
	a.End()
	w.InsertDocument(bson.D{{Key: "aggregateId", Value: "lost"}, {Key: "version", Value: 1}})
	crowd(w)
}

// crowd fills an oplog of a hundred entries with writes to another collection.
func crowd(w *world.World) {
	w.Helper()
	for range 300 {
		w.InsertInto(w.Events.Database().Collection("other"), bson.D{{Key: "x", Value: 1}})
	}
}

// forgetful returns a server that accepts resume points that it no longer has.
func forgetful() world.Options {
	return world.Options{Mongo: mongo.Options{OplogEntries: 100, AcceptLostTokens: true}}
}

// G6: if a server accepts a resume point that its oplog no longer contains, and returns no changes,
// the producer does not rely on it: the loss is reported.
func TestG6AResumePointThatTheOplogForgotIsHistoryLost(t *testing.T) {
	for name, refuse := range map[string]string{"where the oplog can be read": "", "where it cannot": "find"} {
		subtest(t, name, forgetful(), func(w *world.World) {
			forgotten(w)
			before := w.Checkpoint()
			if refuse != "" {
				w.FailMongo(1000, 13, refuse)
			}
			require.ErrorContains(w, w.StartProducer("b", nil).Failed(), "changes in between may be lost (ON_HISTORY_LOST=fail)")
			after := w.Checkpoint()
			require.Equal(w, before.Token, after.Token, "no later token is kept")
			require.EqualValues(w, 10, after.Published)
		})
	}
}

// G6: while it is unknown whether the oplog still contains the resume point, the checkpoint moves
// with events only; once that is confirmed, an idle stream's checkpoint moves again.
func TestG6NoTokenIsKeptBeforeTheResumePointIsConfirmed(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		ran(w)
		w.FailMongo(5, maxTimeMSExpired, "find")
		b := startLeader(w, "b", nil)
		before := w.Checkpoint().Position
		for range 3 {
			w.InsertInto(w.Events.Database().Collection("other"), bson.D{{Key: "x", Value: 1}})
			w.Pass(time.Second)
		}
		require.Equal(w, before, w.Checkpoint().Position)
		w.InsertMany(10, 2)
		w.Published()
		w.Eventually("the checkpoint moves with an event", func() bool { return w.Checkpoint().Position > before })
		b.End()
		c := startLeader(w, "c", nil)
		before = w.Checkpoint().Position
		w.InsertInto(w.Events.Database().Collection("other"), bson.D{{Key: "x", Value: 1}})
		w.Eventually("the checkpoint moves while idle", func() bool { return w.Checkpoint().Position > before })
		c.End()
	})
}

// maxTimeMSExpired is a transient error that the driver does not retry.
const maxTimeMSExpired = 50

// G6: an idle collection of a busy deployment whose oplog cannot be read, as behind a mongos, stays
// within the oplog while a producer leads, also after a change of leaders. A mongos answers every
// request to the database local with 20.
func TestG6AnIdleStreamWhoseOplogCannotBeReadStaysOnTheOplog(t *testing.T) {
	for name, code := range map[string]int{"a mongos": 20, "an error in no table": 96, "no such namespace": 73, "no rights": 13} {
		subtest(t, name, world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
			ran(w)
			w.FailMongo(1_000_000, code, "find")
			b := startLeader(w, "b", nil)
			for range 300 { // others write more than the oplog holds
				w.InsertInto(w.Events.Database().Collection("other"), bson.D{{Key: "x", Value: 1}})
				w.Pass(time.Second)
			}
			b.Vanish()
			startAndPublish(w, "c", nil, 10, 2).End()
			require.NotContains(w, b.Log.Text(), "it is unknown whether the oplog still holds the checkpoint")
		})
	}
}

// G6: the driver resumes on its own, behind a high-water mark that it has seen and not behind the
// checkpoint. The changes that follow do not prove that the server has the checkpoint's resume
// point.
func TestG6TheDriversOwnResumeConfirmsNothing(t *testing.T) {
	world.InVirtualTime(t, forgetful(), func(w *world.World) {
		forgotten(w)
		before := w.Checkpoint()
		w.FailMongo(1_000_000, maxTimeMSExpired, "find")
		b := startLeader(w, "b", nil)
		w.Pass(2 * time.Second) // empty answers, with high-water marks
		w.Mongo.DropConnections()
		w.Pass(3 * time.Second)
		w.FailMongo(1, maxTimeMSExpired, "none")
		w.InsertMany(1, 1)
		require.ErrorContains(w, b.Failed(), "changes in between may be lost (ON_HISTORY_LOST=fail)")
		require.Equal(w, before.Token, w.Checkpoint().Token)
		require.Len(w, w.Took(), 10)
	})
}

// G6: the operator's command does not move the checkpoint to such a point either, and the doctor
// reports it.
func TestG6OperatorRefusesAPointThatTheOplogForgot(t *testing.T) {
	world.InVirtualTime(t, forgetful(), func(w *world.World) {
		forgotten(w)
		before := w.Checkpoint()
		operate(w, "token", "set", before.Token["_data"].(string)).fails("its oplog begins after it")
		require.Equal(w, before, w.Checkpoint())
		operate(w, "doctor").reports(1, `PROBLEM +history +the stream cannot continue from the checkpoint`)
	})
}

// The features that a version of MongoDB lacks are reported by name, at the start of a term and by
// the doctor.
func TestWhatAVersionOfMongoDBLacksIsNamed(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{Version: [3]int32{4, 4, 1}, NoSplit: true}}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		require.Contains(t, a.Log.Text(), "this version of MongoDB lacks features of later versions")
		require.Contains(t, a.Log.Text(), "pre- and post-images (since 6.0.0)")
		require.Regexp(t, `ok +version +MongoDB 4\.4\.1 lacks snapshot reads`, operate(w, "doctor").Out)
		a.End()
	})
}
