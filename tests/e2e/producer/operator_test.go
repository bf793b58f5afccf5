package producer_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// operated is the outcome of one command in a world.
type operated struct {
	world.Operated
	w *world.World
}

func operate(w *world.World, args ...string) operated {
	w.Helper()
	return operateWith(w, nil, args...)
}

// operateWith runs one command of the producer; change adjusts its settings.
func operateWith(w *world.World, change adjustment, args ...string) operated {
	w.Helper()
	config := w.ProducerConfig()
	if change != nil {
		change(&config, &producer.Options{})
	}
	return operated{w.OperateProducer([]producer.Config{config}, args...), w}
}

// succeeds requires that the command succeeded, and that it printed these texts.
func (o operated) succeeds(texts ...string) {
	o.w.Helper()
	require.Equal(o.w, 0, o.Code, o.Out+o.Err)
	for _, text := range texts {
		require.Contains(o.w, o.Out, text)
	}
}

// fails requires that the command failed, with an error that contains these texts.
func (o operated) fails(texts ...string) {
	o.w.Helper()
	require.Equal(o.w, commandline.ExitProblem, o.Code, o.Out)
	for _, text := range texts {
		require.Contains(o.w, o.Err, text)
	}
}

// reports requires an exit code, and output that matches these regular expressions.
func (o operated) reports(code int, expressions ...string) {
	o.w.Helper()
	require.Equal(o.w, code, o.Code, o.Out+o.Err)
	for _, expression := range expressions {
		require.Regexp(o.w, expression, o.Out)
	}
}

// blobNames returns the names of a container's blobs; none if it does not exist.
func blobNames(w *world.World, container string) (names []string) {
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
func blobContent(w *world.World, container, name string) string {
	w.Helper()
	response, err := w.Blobs().DownloadStream(w.Context(), container, name, nil)
	require.NoError(w, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(w, err)
	return string(content)
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
		var begins operated
		w.Eventually("there is a leader without a position", func() bool {
			begins = operate(w, "status")
			return strings.Contains(begins.Out, "BEGINS")
		})
		begins.reports(1, `state +BEGINS: its leader has no position yet`)
		require.Contains(t, operate(w, "status", "--json").Out, `"begins": true`)
		w.FailMongo(0, 189, "aggregate")
		w.Leads("a")
		w.Eventually("it has begun", func() bool { return operate(w, "status").Code == 0 })
	})
}

func TestOperatorShowsTheStatusOfALeaderAndOfNone(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog}, func(w *world.World) {
		operate(w, "status").fails(`no producer has led stream "shop.events" yet`)
		require.Equal(t, 1, operate(w, "token", "show").Code)
		require.Equal(t, 1, operate(w, "lease", "break").Code)

		p := startAndPublish(w, "a", nil, 30, 3)
		checkpointed(w, 30)
		var status struct {
			Leader    string   `json:"leader"`
			Epoch     int64    `json:"epoch"`
			Lease     string   `json:"lease"`
			Published int64    `json:"published"`
			Lag       *int64   `json:"lag_seconds"`
			Heartbeat *float64 `json:"heartbeat_age_seconds"`
			Headroom  *int64   `json:"oplog_headroom_seconds"`
			Note      string   `json:"oplog_headroom_note"`
		}
		got := operate(w, "status", "--json")
		got.succeeds()
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
		operate(w, "status").succeeds()
		p.End()

		time.Sleep(time.Hour) // virtual
		w.InsertMany(1, 1)
		stopped := operate(w, "status")
		require.Contains(t, stopped.Out, "none (the last was a)")
		require.Regexp(t, `lag +36\d\d s behind`, stopped.Out)
	})
}

func TestCommandsReportTheOplogsHeadroom(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog, Mongo: mongo.Options{OplogEntries: 200}}, func(w *world.World) {
		time.Sleep(10 * time.Minute) // virtual: the oplog begins with the start of the server
		startAndPublish(w, "a", nil, 1, 1).End()
		require.Regexp(t, `oplog headroom +6[0-3]\d s from the oldest entry`, operate(w, "status").Out)
		require.Regexp(t, `ok +oplog window +6[0-3]\d s: every producer may be stopped`, operate(w, "doctor").Out)

		time.Sleep(time.Minute) // virtual
		w.InsertMany(300, 1)
		require.Regexp(t, `none: the oplog begins \d\d s after the position, and the changes between are lost`, operate(w, "status").Out)
	})
}

// G1: of two operators that rewind at the same time, to different times, neither moves the
// checkpoint forward over what the other wants published again.
func TestG1TwoRewindsAtOnceLeaveNothingOut(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := startLeader(w, "a", nil)
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
			rewinds, ended := [2]operated{}, make(chan struct{})
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
			operate(w, "token", "set", "--forward", string(end.Token)).succeeds()
		}
	})
}

// G4: an operator's change takes the same steps as a new leader: it is refused while a leader holds
// the lease, gets the next epoch, and keeps the old record. The changes behind the new position are
// published again, under new message ids, as the same events (G3).
func TestG3G4OperatorRewindsAndTheNextLeaderPublishesAgain(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := startAndPublish(w, "a", nil, 20, 2)
		time.Sleep(5 * time.Second) // virtual: the rewind ends between the two
		middle := time.Now()
		w.InsertMany(30, 2)
		w.Published()
		checkpointed(w, 50)

		operate(w, "token", "rewind", "--to", middle.Format(time.RFC3339)).fails("refused: a leads stream")
		require.EqualValues(t, 1, w.Checkpoint().Epoch)
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, blobNames(w, "sluice"), "a refusal leaves nothing behind")
		p.End()

		before := blobContent(w, "sluice", "shop.events.json")
		operate(w, "token", "rewind", "--to", middle.Format(time.RFC3339)).reports(0,
			`shop\.events\.json\.epoch-1`, `generation +0 → 1`, "to changes and every subscription that it has")
		require.Equal(t, before, blobContent(w, "sluice", "shop.events.json.epoch-1"), "the old record, byte for byte")
		require.EqualValues(t, 2, w.Checkpoint().Epoch)
		require.Equal(t, "operator@desk", w.Checkpoint().Leader)
		require.EqualValues(t, 50, w.Checkpoint().Published)
		require.True(t, leaseIsFree(w), "the lease is given back")

		first := w.Took()
		p = startLeader(w, "a", nil)
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
		p := startLeader(w, "a", nil)
		first := w.Checkpoint().Token["_data"].(string)
		w.InsertMany(40, 4)
		w.Published()
		checkpointed(w, 40)

		operate(w, "token", "set", first).fails("--force")
		operate(w, "token", "set", first, "--force").succeeds("broke the lease of a", "1 → 2")
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
		p := startLeader(w, "a", nil)
		first := w.Checkpoint().Token["_data"].(string)
		p.End()
		time.Sleep(time.Minute) // virtual
		w.InsertMany(200, 4)
		last := lastToken(w)

		operate(w, "token", "set", last).fails("would never be published")
		operate(w, "token", "set", "--forward", last).succeeds()
		require.EqualValues(t, 2, w.Checkpoint().Epoch)

		for _, wrong := range []struct {
			want string
			args []string
		}{
			{"cannot continue from this token", []string{"token", "set", first}},
			{"hex that begins with 82", []string{"token", "set", "AeARBpQ/AAAA"}},
			{"not an Extended JSON document", []string{"token", "set", "{_data"}},
			{"the oplog does not reach back to", []string{"token", "rewind", "--to", start.Add(time.Second).Format(time.RFC3339)}},
			{"is no time in the past", []string{"token", "rewind", "--to", time.Now().Add(time.Hour).Format(time.RFC3339)}},
		} {
			operate(w, wrong.args...).fails("refused", wrong.want)
		}
		require.EqualValues(t, 2, w.Checkpoint().Epoch, "refusals change nothing")

		putBlob(w, "sluice", "shop.events.json.epoch-2", "of another program")
		require.Contains(t, operate(w, "token", "set", last).Out, "kept as blob shop.events.json.epoch-2.2")
		require.Equal(t, "of another program", blobContent(w, "sluice", "shop.events.json.epoch-2"), "a copy replaces nothing")
		require.Contains(t, operate(w, "token", "show").Out, last)
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
		p := startLeader(w, "a", nil)
		operate(w, "lease", "break").succeeds("broke the lease that a held in epoch 1")
		w.Eventually("the next epoch", func() bool { return w.Checkpoint().Epoch == 2 })
		p.End()
		require.Contains(t, operate(w, "lease", "break").Out, "nothing to do")
	})
}

func TestOperatorDoctor(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		operate(w, "doctor").reports(1, `PROBLEM +blob container +it does not exist\. To fix it: create it`)

		p := startLeader(w, "a", nil)
		well := operate(w, "doctor")
		require.Equal(t, 0, well.Code)
		require.NotContains(t, well.Out, "PROBLEM")
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, blobNames(w, "sluice"), "the scratch blob is removed")
		require.EqualValues(t, 1, w.Checkpoint().Epoch, "looking changes nothing")
		p.End()

		require.Regexp(t, `ok +claim checks +not used`, well.Out)
		claiming := func(c *producer.Config, _ *producer.Options) { c.OnOversize = "claimcheck" }
		operateWith(w, claiming, "doctor").reports(1, `PROBLEM +claim checks +the container does not exist\. To fix it: create it`)
		_, err := w.Blobs().CreateContainer(t.Context(), "claim-checks", nil)
		require.NoError(t, err)
		require.Regexp(t, `ok +claim checks +bodies can be stored`, operateWith(w, claiming, "doctor").Out)

		const secret = "c2VjcmV0"
		for _, sick := range []struct {
			want   string
			change adjustment
		}{
			{`PROBLEM +service bus +the namespace has no entity "nowhere"`, func(c *producer.Config, _ *producer.Options) { c.Topic = "nowhere" }},
			{`PROBLEM +service bus +the connection string is not accepted.*disableLocalAuth`, func(c *producer.Config, _ *producer.Options) {
				c.ServiceBus.ConnectionString = "Endpoint=sb://bus:5672;SharedAccessKeyName=nobody;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true"
			}},
			{`PROBLEM +blob container +storage answered 403 .*Storage Blob Data Contributor`, func(c *producer.Config, _ *producer.Options) {
				c.Blob.ConnectionString = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + secret +
					";BlobEndpoint=http://" + world.BlobHost + "/devstoreaccount1"
			}},
			{`PROBLEM +pre-images +required by the settings.*collMod`, func(c *producer.Config, _ *producer.Options) { c.BeforeChange = "required" }},
		} {
			got := operateWith(w, sick.change, "doctor")
			got.reports(1, sick.want)
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
		p := startLeader(w, "a", nil)
		operate(w, "doctor").reports(0,
			`ok +mongodb +it answers, in \S+ \(replica set rs0\)`, `ok +mongodb user +the connection string names no user`)
		p.End()
	})
}

// The container of the world exists, and MongoDB does not answer.
func TestCommandsReportWhatDoesNotAnswer(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		startLeader(w, "a", nil).End()
		away := func(c *producer.Config, _ *producer.Options) {
			c.MongoURI = "mongodb://user:hunter2@nowhere:27017/?replicaSet=rs0"
		}
		status := operateWith(w, away, "status")
		status.reports(1, "unknown: MongoDB does not answer", `none \(the last was a\)`)
		doctor := operateWith(w, away, "doctor")
		require.Regexp(t, `PROBLEM +mongodb +it does not answer: nowhere:27017`, doctor.Out)
		require.NotContains(t, status.Out+status.Err+doctor.Out+doctor.Err, "hunter2")

		stranger := func(c *producer.Config, _ *producer.Options) {
			c.MongoURI = strings.Replace(w.MongoURI(), "//", "//user:hunter2@", 1)
		}
		doctor = operateWith(w, stranger, "doctor")
		require.Regexp(t, `PROBLEM +mongodb +it does not accept the user\. To fix it: check user, password and authSource`, doctor.Out)
		require.NotContains(t, doctor.Out+doctor.Err, "hunter2")

		w.Blob.Fail(503, time.Hour)
		require.Equal(t, 1, operate(w, "status").Code)
		require.Regexp(t, `PROBLEM +blob container +storage answered 503`, operate(w, "doctor").Out)
	})
}
