package producer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G3: an operator who moves the checkpoint after an upgrade of MongoDB keeps the stream's token
// version: what is published again has the positions that read models know.
func TestG3ARewindKeepsTheStreamsForm(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{TokenVersion: 1}}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		begun := time.Now()
		w.Pass(time.Second)
		w.InsertMany(20, 4)
		w.Published()
		a.End()
		w.Mongo.SetTokenVersion(2)
		form, data := envelope.TokenForm(w.Checkpoint().Position), w.Checkpoint().Token["_data"].(string)
		first := w.Took()

		operate(w, "token", "rewind", "--to", begun.UTC().Format(time.RFC3339)).succeeds()
		require.Equal(t, form, envelope.TokenForm(w.Checkpoint().Position))
		operate(w, "token", "set", "--forward", data).succeeds()
		require.Equal(t, data, w.Checkpoint().Position)
		require.Regexp(t, `ok +tokens +sortable, version 2B04; positions keep the stream's version, 2B02`, operate(w, "doctor").Out)
		operate(w, "token", "rewind", "--to", begun.UTC().Format(time.RFC3339)).succeeds()

		b := w.StartProducer("b", nil)
		w.Eventually("all is published again", func() bool { return len(w.Took()) == 2*len(first) })
		b.End()
		positions := func(took []servicebus.Accepted) (of []any) { // of one aggregate, which come in order
			for _, m := range took {
				if m.SessionID == "a0" {
					of = append(of, m.Properties[envelope.PropPosition])
				}
			}
			return of
		}
		require.Len(t, positions(first), 5)
		require.Equal(t, positions(first), positions(w.Took()[len(first):]))
	})
}

// G3: changes with positions that an earlier version could not compute are published only after the
// checkpoint records that. So that version does not lead afterwards, however soon this leader dies.
func TestG3TheCheckpointFirstRecordsThatPositionsAreTranslated(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{TokenVersion: 1}}, func(w *world.World) {
		a := startAndPublish(w, "a", nil, 10, 2)
		checkpointed(w, 10)
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
		checkpointed(w, 21)
		require.False(t, w.Checkpoint().Translated, "and with the stream's own form any version may lead again")
		a.End()
	})
}

// G1 and G3: a stream whose checkpoint has a token of version 2 continues at a server that accepts
// only version 1, as when members of 5.0 and 6.0 lead in turn during an upgrade: with the same
// token in version 1, whether the reader is open or starts.
func TestG1G3ATokenThatAnOlderServerDoesNotTakeIsWrittenAsItsOwn(t *testing.T) {
	for name, restarted := range map[string]bool{"an open stream": false, "a new leader": true} {
		for _, begun := range []int{1, 2} {
			o := world.Options{Mongo: mongo.Options{Version: mongo.Versions["5.0"], TokenVersion: begun}}
			subtest(t, fmt.Sprintf("%s, begun in version %d", name, begun), o, func(w *world.World) {
				w.Mongo.SetTokenVersion(2)
				insert := func(n int) { // an _id of 64 bits has bits of its type beside the token
					w.Inserted["x"]++
					w.InsertDocument(bson.D{{Key: "_id", Value: int64(n)}, {Key: "aggregateId", Value: "x"}, {Key: "version", Value: n}})
				}
				a := startLeader(w, "a", nil)
				for n := 1; n <= 30; n++ {
					insert(n)
					if n%10 > 0 {
						continue
					}
					w.Published()
					checkpointed(w, n)
					if restarted {
						a.MongoPlug.Pull() // no later token is written
						a.End()
					}
					w.Mongo.SetTokenVersion(1 + n/10%2)
					require.NotRegexp(w, `PROBLEM +(change stream|history)`, operate(w, "doctor").Out)
					if restarted {
						a = startLeader(w, "a", nil)
					}
				}
				w.Published()
				positionsGrow(w)
				require.Len(w, w.Took(), 30)
				a.End()
			})
		}
	}
}

// In 6.0 the stage that splits large events causes tokens of version 2: the doctor opens the stream
// with it, as the leader does.
func TestTheDoctorReportsTheLeadersTokens(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{Version: mongo.Versions["6.0"]}}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		require.Equal(w, "2B04", envelope.TokenForm(w.Checkpoint().Position))
		require.Regexp(w, `ok +tokens +sortable, version 2B04\n`, operate(w, "doctor").Out)
		a.End()
	})
}
