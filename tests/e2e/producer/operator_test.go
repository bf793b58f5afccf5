package producer_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func operate(w *world.World, args ...string) world.Operated {
	w.Helper()
	return operateWith(w, nil, args...)
}

// operateWith runs one command of the producer; change adjusts its settings.
func operateWith(w *world.World, change func(*producer.Config), args ...string) world.Operated {
	w.Helper()
	config := w.ProducerConfig()
	if change != nil {
		change(&config)
	}
	return w.OperateProducer([]producer.Config{config}, args...)
}

// blobNames returns the names of the container's blobs.
func blobNames(w *world.World) []string {
	w.Helper()
	return blobNamesIn(w, "sluice")
}

// blobNamesIn returns those of a container; none if it does not exist.
func blobNamesIn(w *world.World, container string) (names []string) {
	w.Helper()
	for pager := w.Blobs().NewListBlobsFlatPager(container, nil); pager.More(); {
		page, err := pager.NextPage(w.Context())
		if bloberror.HasCode(err, bloberror.ContainerNotFound) {
			return nil
		}
		require.NoError(w, err)
		for _, b := range page.Segment.BlobItems {
			names = append(names, *b.Name)
		}
	}
	return names
}

// blobContent returns the content of a blob.
func blobContent(w *world.World, name string) string {
	w.Helper()
	return contentIn(w, "sluice", name)
}

func contentIn(w *world.World, container, name string) string {
	w.Helper()
	response, err := w.Blobs().DownloadStream(w.Context(), container, name, nil)
	require.NoError(w, err)
	defer response.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(response.Body)
	require.NoError(w, err)
	return b.String()
}

func leaseIsFree(w *world.World) bool {
	w.Helper()
	p, err := w.Blobs().ServiceClient().NewContainerClient("sluice").NewBlobClient("shop.events.json").GetProperties(w.Context(), nil)
	require.NoError(w, err)
	return *p.LeaseState != lease.StateTypeLeased
}

// A stream whose leader has not opened its change stream has no beginning yet: what is inserted now
// may come before it.
func TestCommandsReportAStreamWithoutAPosition(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.FailMongo(1_000_000, 189, "aggregate") // PrimarySteppedDown, which is transient
		w.StartProducer("a", nil)
		var begins world.Operated
		w.Eventually("there is a leader without a position", func() bool {
			begins = operate(w, "status")
			return strings.Contains(begins.Out, "BEGINS")
		})
		require.Equal(t, 1, begins.Code)
		require.Regexp(t, `state +BEGINS: its leader has no position yet`, begins.Out)
		require.Contains(t, operate(w, "status", "--json").Out, `"begins": true`)
		w.FailMongo(0, 189, "aggregate")
		w.Leads("a")
		w.Eventually("it has begun", func() bool { return operate(w, "status").Code == 0 })
	})
}

func TestOperatorShowsTheStatusOfALeaderAndOfNone(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog}, func(w *world.World) {
		none := operate(w, "status")
		require.Equal(t, 1, none.Code)
		require.Contains(t, none.Err, `no producer has led stream "shop.events" yet`)
		require.Equal(t, 1, operate(w, "token", "show").Code)
		require.Equal(t, 1, operate(w, "lease", "break").Code)

		p := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(30, 3)
		w.Published()
		w.Eventually("the checkpoint has it", func() bool { return w.Checkpoint().Published == 30 })
		var status struct {
			Leader    string   `json:"leader"`
			Epoch     int64    `json:"epoch"`
			Lease     string   `json:"lease"`
			Position  string   `json:"position"`
			Published int64    `json:"published"`
			Lag       *int64   `json:"lag_seconds"`
			Heartbeat *float64 `json:"heartbeat_age_seconds"`
			Headroom  *int64   `json:"oplog_headroom_seconds"`
			Note      string   `json:"oplog_headroom_note"`
		}
		got := operate(w, "status", "--json")
		require.Equal(t, 0, got.Code, got.Err)
		require.NoError(t, json.Unmarshal([]byte(got.Out), &status))
		require.Equal(t, "a", status.Leader)
		require.EqualValues(t, 1, status.Epoch)
		require.Equal(t, "leased", status.Lease)
		require.EqualValues(t, 30, status.Published)
		require.NotNil(t, status.Lag)
		require.LessOrEqual(t, *status.Lag, int64(2))
		require.LessOrEqual(t, *status.Heartbeat, 1.5)
		require.Empty(t, status.Note)
		require.NotNil(t, status.Headroom)
		require.GreaterOrEqual(t, *status.Headroom, int64(0))
		require.Equal(t, 0, operate(w, "status").Code)
		p.End()

		time.Sleep(time.Hour) // virtual
		w.InsertMany(1, 1)
		stopped := operate(w, "status")
		require.Contains(t, stopped.Out, "none (the last was a)")
		require.Regexp(t, `lag +36\d\d s behind`, stopped.Out)
	})
}

func TestCommandsReportThatReadOnLocalIsMissing(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		p.End()
		w.FailMongo(2, 13, "find") // reads are tried twice
		got := operate(w, "status")
		require.Empty(t, got.Err)
		require.Contains(t, got.Out, "unknown: needs read on local")
	})
}

func TestCommandsReportTheOplogsHeadroom(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog, Mongo: mongo.Options{OplogEntries: 200}}, func(w *world.World) {
		before := time.Now()
		time.Sleep(10 * time.Minute) // virtual: the oplog begins with the start of the server
		p := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(1, 1)
		w.Published()
		p.End()
		require.Regexp(t, `oplog headroom +6[0-3]\d s from the oldest entry`, operate(w, "status").Out)
		require.Regexp(t, `ok +oplog window +6[0-3]\d s: every producer may be stopped`, operate(w, "doctor").Out)

		time.Sleep(time.Minute) // virtual
		w.InsertMany(300, 1)
		require.Regexp(t, `none: the oplog begins \d\d s after the position, and the changes between are lost`, operate(w, "status").Out)
		tooEarly := operate(w, "token", "rewind", "--to", before.UTC().Format(time.RFC3339))
		require.Equal(t, 1, tooEarly.Code)
		require.Contains(t, tooEarly.Err, "the oplog does not reach back to")
	})
}

// G1: of two operators that rewind at the same time, to different times, neither moves the
// checkpoint forward over what the other wants published again.
func TestG1TwoRewindsAtOnceLeaveNothingOut(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		var times []string
		for range 2 {
			times = append(times, time.Now().Format(time.RFC3339))
			time.Sleep(5 * time.Second) // virtual
			w.InsertMany(1, 1)
			w.Published()
		}
		p.End()
		w.OperatorDelay = 200 * time.Millisecond
		var end struct {
			Token json.RawMessage `json:"token"`
		}
		require.NoError(w, json.Unmarshal([]byte(operate(w, "token", "show", "--json").Out), &end))
		for after := time.Duration(0); after < 4*time.Second; after += 100 * time.Millisecond {
			rewinds, ended := [2]world.Operated{}, make(chan struct{})
			go func() {
				defer close(ended)
				time.Sleep(after) // virtual
				rewinds[1] = operate(w, "token", "rewind", "--force", "--to", times[1])
			}()
			rewinds[0] = operate(w, "token", "rewind", "--force", "--to", times[0])
			<-ended
			if rewinds[0].Code == 0 {
				at := operate(w, "token", "show").Out
				require.Contains(w, at, times[0][:19], "%s after the first:\n%s\n%s", after, rewinds[0].Out, rewinds[1].Out)
			}
			require.Zero(w, operate(w, "token", "set", "--forward", string(end.Token)).Code)
		}
	})
}

// G4: an operator's change takes the same steps as a new leader: it is refused while a leader holds
// the lease, gets the next epoch, and keeps the old record. The changes behind the new position are
// published again, under new message ids, as the same events (G3).
func TestG3G4OperatorRewindsAndTheNextLeaderPublishesAgain(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(20, 2)
		w.Published()
		time.Sleep(5 * time.Second) // virtual: the rewind ends between the two
		middle := time.Now()
		w.InsertMany(30, 2)
		w.Published()
		w.Eventually("the checkpoint has it", func() bool { return w.Checkpoint().Published == 50 })

		refused := operate(w, "token", "rewind", "--to", middle.Format(time.RFC3339))
		require.Equal(t, 1, refused.Code)
		require.Contains(t, refused.Err, "refused: a leads stream")
		require.EqualValues(t, 1, w.Checkpoint().Epoch)
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, blobNames(w), "a refusal leaves nothing behind")
		p.End()

		before := blobContent(w, "shop.events.json")
		done := operate(w, "token", "rewind", "--to", middle.Format(time.RFC3339))
		require.Equal(t, 0, done.Code, done.Err)
		require.Contains(t, done.Out, "shop.events.json.epoch-1")
		require.Regexp(t, `generation +0 → 1`, done.Out)
		require.Contains(t, done.Out, "to changes and every subscription that it has")
		require.Equal(t, before, blobContent(w, "shop.events.json.epoch-1"), "the old record, byte for byte")
		require.EqualValues(t, 2, w.Checkpoint().Epoch)
		require.Equal(t, "operator@desk", w.Checkpoint().Leader)
		require.EqualValues(t, 50, w.Checkpoint().Published)
		require.True(t, leaseIsFree(w), "the lease is given back")

		first := w.Took()
		p = w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(1, 1)
		w.Eventually("what came after that time is published again", func() bool { return w.Bus.Stats(world.Topic).Accepted == 50+30+1 })
		p.End()
		require.EqualValues(t, 3, w.Checkpoint().Epoch)
		require.Zero(t, w.Bus.Stats(world.Topic).Duplicates, "the broker takes it all")
		known, ids := map[string]string{}, map[string]bool{}
		for _, m := range first {
			known[m.Properties[envelope.PropPosition].(string)] = m.Properties["cloudEvents_id"].(string)
			ids[m.MessageID] = true
		}
		again := 0
		for _, m := range w.Took()[len(first):] {
			require.NotContains(t, ids, m.MessageID)
			if event, is := known[m.Properties[envelope.PropPosition].(string)]; is { // the new event is of another aggregate, and may come at any time
				again++
				require.Equal(t, event, m.Properties["cloudEvents_id"], "to everybody else it is the same event")
			}
		}
		require.Equal(t, 30, again)
	})
}

// G4: with --force the lease is broken; the leader that held it is fenced off and leads again only
// from the new record.
func TestG4OperatorMovesTheTokenUnderALeaderByForce(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		first := w.Checkpoint().Token["_data"].(string)
		w.InsertMany(40, 4)
		w.Published()
		w.Eventually("the checkpoint has it", func() bool { return w.Checkpoint().Published == 40 })

		refused := operate(w, "token", "set", first)
		require.Equal(t, 1, refused.Code)
		require.Contains(t, refused.Err, "--force")

		done := operate(w, "token", "set", first, "--force")
		require.Equal(t, 0, done.Code, done.Err)
		require.Contains(t, done.Out, "broke the lease of a")
		require.Contains(t, done.Out, "1 → 2")
		w.Eventually("a leads again, from there", func() bool { r := w.Checkpoint(); return r.Leader == "a" && r.Epoch == 3 })
		w.Eventually("all of it came again", func() bool { return w.Bus.Stats(world.Topic).Accepted == 80 })
		w.InsertMany(10, 4)
		w.Eventually("so does what is new", func() bool { return w.Bus.Stats(world.Topic).Accepted == 90 })
		require.Zero(t, w.Bus.Stats(world.Topic).Duplicates)
		judgeEpochs(w)
		p.End()
	})
}

func TestOperatorRefusesTokensThatWouldLoseOrCannotBeReached(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog, Mongo: mongo.Options{OplogEntries: 50}}, func(w *world.World) {
		start := time.Now()
		p := w.StartProducer("a", nil)
		w.Leads("a")
		first := w.Checkpoint().Token["_data"].(string)
		p.End()
		time.Sleep(time.Minute) // virtual
		w.InsertMany(200, 4)
		last := lastToken(w)

		forward := operate(w, "token", "set", last)
		require.Equal(t, 1, forward.Code)
		require.Contains(t, forward.Err, "would never be published")
		require.Equal(t, 0, operate(w, "token", "set", "--forward", last).Code)
		require.EqualValues(t, 2, w.Checkpoint().Epoch)

		for _, wrong := range []struct {
			says string
			args []string
		}{
			{"cannot continue from this token", []string{"token", "set", first}},
			{"hex that begins with 82", []string{"token", "set", "AeARBpQ/AAAA"}},
			{"not an Extended JSON document", []string{"token", "set", "{_data"}},
			{"the oplog does not reach back to", []string{"token", "rewind", "--to", start.Add(time.Second).Format(time.RFC3339)}},
			{"is no time in the past", []string{"token", "rewind", "--to", time.Now().Add(time.Hour).Format(time.RFC3339)}},
		} {
			got := operate(w, wrong.args...)
			require.Equal(t, 1, got.Code, wrong.args)
			require.Contains(t, got.Err, "refused")
			require.Contains(t, got.Err, wrong.says)
		}
		require.EqualValues(t, 2, w.Checkpoint().Epoch, "refusals change nothing")

		_, err := w.Blobs().UploadBuffer(w.Context(), "sluice", "shop.events.json.epoch-2", []byte("of somebody"), nil)
		require.NoError(t, err)
		require.Contains(t, operate(w, "token", "set", last).Out, "kept as blob shop.events.json.epoch-2.2")
		require.Equal(t, "of somebody", blobContent(w, "shop.events.json.epoch-2"), "a copy replaces nothing")
		shown := operate(w, "token", "show")
		require.Contains(t, shown.Out, last)
	})
}

// lastToken returns the current token.
func lastToken(w *world.World) string {
	w.Helper()
	stream, err := w.Events.Watch(w.Context(), bson.A{})
	require.NoError(w, err)
	defer func() { _ = stream.Close(w.Context()) }()
	return stream.ResumeToken().Lookup("_data").StringValue()
}

func TestG4OperatorBreaksTheLease(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		broke := operate(w, "lease", "break")
		require.Equal(t, 0, broke.Code, broke.Err)
		require.Contains(t, broke.Out, "broke the lease that a held in epoch 1")
		w.Eventually("the next epoch", func() bool { return w.Checkpoint().Epoch == 2 })
		p.End()
		require.Contains(t, operate(w, "lease", "break").Out, "nothing to do")
	})
}

func TestOperatorDoctor(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		missing := operate(w, "doctor")
		require.Equal(t, 1, missing.Code)
		require.Regexp(t, `PROBLEM +blob container +it does not exist\. To fix it: create it`, missing.Out)

		p := w.StartProducer("a", nil)
		w.Leads("a")
		well := operate(w, "doctor")
		require.Equal(t, 0, well.Code)
		require.NotContains(t, well.Out, "PROBLEM")
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, blobNames(w), "the scratch blob is removed")
		require.EqualValues(t, 1, w.Checkpoint().Epoch, "looking changes nothing")
		p.End()

		require.Regexp(t, `ok +claim checks +not used`, well.Out)
		claiming := func(c *producer.Config) { c.OnOversize = "claimcheck" }
		unclaimed := operateWith(w, claiming, "doctor")
		require.Equal(t, 1, unclaimed.Code)
		require.Regexp(t, `PROBLEM +claim checks +the container does not exist\. To fix it: create it`, unclaimed.Out)
		_, err := w.Blobs().CreateContainer(t.Context(), "claim-checks", nil)
		require.NoError(t, err)
		require.Regexp(t, `ok +claim checks +bodies can be stored`, operateWith(w, claiming, "doctor").Out)

		const secret = "c2VjcmV0"
		for _, sick := range []struct {
			says   string
			change func(*producer.Config)
		}{
			{`PROBLEM +service bus +the namespace has no entity "nowhere"`, func(c *producer.Config) { c.Topic = "nowhere" }},
			{`PROBLEM +service bus +the connection string is not accepted.*disableLocalAuth`, func(c *producer.Config) {
				c.ServiceBus.ConnectionString = "Endpoint=sb://bus:5672;SharedAccessKeyName=nobody;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true"
			}},
			{`PROBLEM +blob container +storage answered 403 .*Storage Blob Data Contributor`, func(c *producer.Config) {
				c.Blob.ConnectionString = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + secret +
					";BlobEndpoint=http://" + world.BlobHost + "/devstoreaccount1"
			}},
			{`PROBLEM +pre-images +required by the settings.*collMod`, func(c *producer.Config) { c.BeforeChange = "required" }},
		} {
			got := operateWith(w, sick.change, "doctor")
			require.Equal(t, 1, got.Code)
			require.Regexp(t, sick.says, got.Out)
			require.NotContains(t, got.Out+got.Err, secret)
		}
		w.FailMongo(4, 13, "aggregate") // with the stage that splits large events and without, each twice
		require.Regexp(t, `PROBLEM +change stream +the user may not open one on shop.events. To fix it: give the user`, operate(w, "doctor").Out)
	})
}

// A MongoDB without the command has answered. Versions before 4.4.2 do not have hello, and
// everything works with them.
func TestTheDoctorCountsAnErrorAsAnAnswer(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{NoHello: true}}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		doctor := operate(w, "doctor")
		require.Equal(t, 0, doctor.Code, doctor.Out)
		require.Regexp(t, `ok +mongodb +it answers, in \S+ \(replica set rs0\)`, doctor.Out)
		require.Regexp(t, `ok +mongodb user +the connection string names no user`, doctor.Out)
		p.End()
	})
}

// The container of the world exists, and MongoDB does not answer.
func TestCommandsReportWhatDoesNotAnswer(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		p.End()
		away := func(c *producer.Config) { c.MongoURI = "mongodb://user:hunter2@nowhere:27017/?replicaSet=rs0" }
		status := operateWith(w, away, "status")
		require.Equal(t, 1, status.Code)
		require.Contains(t, status.Out, "unknown: MongoDB does not answer")
		require.Contains(t, status.Out, "none (the last was a)")
		doctor := operateWith(w, away, "doctor")
		require.Regexp(t, `PROBLEM +mongodb +it does not answer: nowhere:27017`, doctor.Out)
		require.NotContains(t, status.Out+status.Err+doctor.Out+doctor.Err, "hunter2")

		stranger := func(c *producer.Config) { c.MongoURI = strings.Replace(w.MongoURI(), "//", "//user:hunter2@", 1) }
		doctor = operateWith(w, stranger, "doctor")
		require.Regexp(t, `PROBLEM +mongodb +it does not accept the user\. To fix it: check user, password and authSource`, doctor.Out)
		require.NotContains(t, doctor.Out+doctor.Err, "hunter2")

		w.Blob.Fail(503, time.Hour)
		require.Equal(t, 1, operate(w, "status").Code)
		require.Regexp(t, `PROBLEM +blob container +storage answered 503`, operate(w, "doctor").Out)
	})
}
