package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G3: an operator who moves the checkpoint after an upgrade of MongoDB keeps the stream's token
// version: what is published again has the positions that read models know.
func TestG3ARewindKeepsTheStreamsForm(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{TokenVersion: 1}}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		begun := time.Now()
		w.Pass(time.Second)
		w.InsertMany(20, 4)
		w.Published()
		a.End()
		w.Mongo.SetTokenVersion(2)
		form, data := envelope.TokenForm(w.Checkpoint().Position), w.Checkpoint().Token["_data"].(string)
		first := w.Took()

		rewound := operate(w, "token", "rewind", "--to", begun.UTC().Format(time.RFC3339))
		require.Zero(t, rewound.Code, rewound.Err)
		require.Equal(t, form, envelope.TokenForm(w.Checkpoint().Position))
		back := operate(w, "token", "set", "--forward", data)
		require.Zero(t, back.Code, back.Err)
		require.Equal(t, data, w.Checkpoint().Position)
		require.Regexp(t, `ok +tokens +sortable, version 2B04; positions keep the stream's version, 2B02`, operate(w, "doctor").Out)
		require.Zero(t, operate(w, "token", "rewind", "--to", begun.UTC().Format(time.RFC3339)).Code)

		b := w.StartProducer("b", nil)
		w.Eventually("all is published again", func() bool { return len(w.Took()) == 2*len(first) })
		b.End()
		var before, anew []any // of each aggregate in order, so of one
		for i, m := range w.Took() {
			if m.SessionID != "a0" {
				continue
			}
			if i < len(first) {
				before = append(before, m.Properties[envelope.PropPosition])
			} else {
				anew = append(anew, m.Properties[envelope.PropPosition])
			}
		}
		require.Len(t, before, 5)
		require.Equal(t, before, anew)
	})
}

// G3: changes with positions that an earlier version could not compute are published only after the
// checkpoint records that. So that version does not lead afterwards, however soon this leader dies.
func TestG3TheCheckpointFirstRecordsThatPositionsAreTranslated(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{TokenVersion: 1}}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(10, 2)
		w.Published()
		w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 10 })
		require.False(t, w.Checkpoint().Translated)
		a.BlobPlug.Pull()
		w.Mongo.SetTokenVersion(2)
		w.InsertMany(1, 1)
		w.Pass(2 * time.Second) // it is read, and the fence is not reached yet
		require.Len(t, w.Took(), 10, "nothing is published before the checkpoint records it")
		require.False(t, w.Checkpoint().Translated)
		a.BlobPlug.PlugIn()
		w.Published()
		require.True(t, w.Checkpoint().Translated)

		w.Mongo.SetTokenVersion(1)
		w.InsertMany(10, 2)
		w.Published()
		w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 21 })
		require.False(t, w.Checkpoint().Translated, "and with the stream's own form any version may lead again")
		a.End()
	})
}

// G1 and G3: a stream whose checkpoint has a token of version 2 continues at a server that accepts
// only version 1, as when members of 5.0 and 6.0 lead in turn during an upgrade: with the same
// token in version 1, whether the reader is open or starts.
func TestG1G3ATokenThatAnOlderServerDoesNotTakeIsWrittenAsItsOwn(t *testing.T) {
	for name, restarted := range map[string]bool{"an open stream": false, "a new leader": true} {
		t.Run(name, func(t *testing.T) {
			for _, begun := range []int{1, 2} {
				world.InVirtualTime(t, world.Options{Mongo: mongo.Options{Version: mongo.Versions["5.0"], TokenVersion: begun}}, func(w *world.World) {
					w.Mongo.SetTokenVersion(2)
					insert := func(n int) { // an _id of 64 bits has bits of its type beside the token
						w.Inserted["x"]++
						w.InsertDocument(bson.D{{Key: "_id", Value: int64(n)}, {Key: "aggregateId", Value: "x"}, {Key: "version", Value: n}})
					}
					a := w.StartProducer("a", nil)
					w.Leads("a")
					for n := 1; n <= 30; n++ {
						insert(n)
						if n%10 > 0 {
							continue
						}
						w.Published()
						w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == int64(n) })
						if restarted {
							a.MongoPlug.Pull() // no later token is written
							a.End()
						}
						w.Mongo.SetTokenVersion(1 + n/10%2)
						doctor := operate(w, "doctor")
						require.NotRegexp(w, `PROBLEM +(change stream|history)`, doctor.Out)
						if restarted {
							a = w.StartProducer("a", nil)
							w.Leads("a")
						}
					}
					w.Published()
					position := ""
					for _, m := range w.Took() {
						require.Greater(w, m.Properties[envelope.PropPosition], position)
						position = m.Properties[envelope.PropPosition].(string)
					}
					require.Len(w, w.Took(), 30)
					a.End()
				})
			}
		})
	}
}

// In 6.0 the stage that splits large events causes tokens of version 2: the doctor opens the stream
// with it, as the leader does.
func TestTheDoctorReportsTheLeadersTokens(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{Version: mongo.Versions["6.0"]}}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		require.Equal(w, "2B04", envelope.TokenForm(w.Checkpoint().Position))
		require.Regexp(w, `ok +tokens +sortable, version 2B04\n`, operate(w, "doctor").Out)
		a.End()
	})
}
