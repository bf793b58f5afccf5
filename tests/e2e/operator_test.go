package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// operated is the outcome of one operator command.
type operated struct {
	code     int
	out, err string
}

func (w *producerWorld) operate(args ...string) operated {
	w.Helper()
	return w.operateWith(nil, args...)
}

// operateWith runs one command of the producer; change adjusts its settings.
func (w *producerWorld) operateWith(change func(*producer.Config), args ...string) operated {
	w.Helper()
	config := w.config()
	if change != nil {
		change(&config)
	}
	return w.operateOn([]producer.Config{config}, args...)
}

// operateOn runs one command of a producer of these streams.
func (w *producerWorld) operateOn(configs []producer.Config, args ...string) operated {
	w.Helper()
	o := producer.Options{
		Instance: "desk",
		ServiceBus: &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return w.busNet.DialContext(ctx, "", "")
			},
		},
		Blob:  blobTransport(w.blob.Transport()),
		Mongo: func(o *options.ClientOptions) { o.SetDialer(w.desk) },
	}
	var out, errOut bytes.Buffer
	load := func() (_ []producer.Config, err error) {
		for _, c := range configs {
			if wrong := c.Validate(); wrong != nil {
				err = settings.Problems{wrong}
			}
		}
		return configs, err
	}
	run := func(context.Context, []producer.Config) error { w.Error("the command ran the producer"); return nil }
	code := producer.Main(w.Context(), args, load, o, &out, &errOut, run)
	w.Logf("$ producer %q → %d\n%s%s", args, code, out.String(), errOut.String())
	return operated{code, out.String(), errOut.String()}
}

// byName is a network with one host.
type byName struct{ listener *netpipe.Listener }

func (n byName) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr != n.listener.Addr().String() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
	}
	return n.listener.DialContext(ctx, network, addr)
}

func (w *producerWorld) blobs() *azblob.Client {
	w.Helper()
	client, err := azblob.NewClientFromConnectionString(blob.ConnectionString(blobHost), blobTransport(w.blob.Transport()))
	require.NoError(w, err)
	return client
}

// names lists the container.
func (w *producerWorld) names() (names []string) {
	w.Helper()
	for pager := w.blobs().NewListBlobsFlatPager("sluice", nil); pager.More(); {
		page, err := pager.NextPage(w.Context())
		require.NoError(w, err)
		for _, b := range page.Segment.BlobItems {
			names = append(names, *b.Name)
		}
	}
	return names
}

// content is a blob as it lies there.
func (w *producerWorld) content(name string) string {
	w.Helper()
	response, err := w.blobs().DownloadStream(w.Context(), "sluice", name, nil)
	require.NoError(w, err)
	defer response.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(response.Body)
	require.NoError(w, err)
	return b.String()
}

func (w *producerWorld) free() bool {
	w.Helper()
	p, err := w.blobs().ServiceClient().NewContainerClient("sluice").NewBlobClient("shop.events.json").GetProperties(w.Context(), nil)
	require.NoError(w, err)
	return *p.LeaseState != lease.StateTypeLeased
}

func TestOperatorShowsTheStatusOfALeaderAndOfNone(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		none := w.operate("status")
		require.Equal(t, 1, none.code)
		require.Contains(t, none.err, `no producer has led stream "shop.events" yet`)
		require.Equal(t, 1, w.operate("token", "show").code)
		require.Equal(t, 1, w.operate("lease", "break").code)

		p := w.start("a", nil)
		w.leads("a")
		w.insertMany(30, 3)
		w.published()
		w.eventually("the checkpoint has it", func() bool { return w.checkpoint().Published == 30 })
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
		got := w.operate("status", "--json")
		require.Equal(t, 0, got.code, got.err)
		require.NoError(t, json.Unmarshal([]byte(got.out), &status))
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
		require.Equal(t, 0, w.operate("status").code)
		p.end()

		time.Sleep(time.Hour) // virtual
		w.insertMany(1, 1)
		stopped := w.operate("status")
		require.Contains(t, stopped.out, "none (the last was a)")
		require.Regexp(t, `lag +36\d\d s behind`, stopped.out)
	})
}

func TestOperatorTellsThatReadOnLocalIsMissing(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		p := w.start("a", nil)
		w.leads("a")
		p.end()
		w.failCommand("find", 13)
		got := w.operate("status")
		require.Equal(t, 0, got.code)
		require.Contains(t, got.out, "unknown: needs read on local")
	})
}

func TestOperatorTellsTheOplogsHeadroom(t *testing.T) {
	inProducerWorld(t, mongo.Options{OplogEntries: 200}, func(w *producerWorld) {
		before := time.Now()
		time.Sleep(10 * time.Minute) // virtual: the oplog begins with the server
		p := w.start("a", nil)
		w.leads("a")
		w.insertMany(1, 1)
		w.published()
		p.end()
		require.Regexp(t, `oplog headroom +6[0-3]\d s from the oldest entry`, w.operate("status").out)
		require.Regexp(t, `ok +oplog window +6[0-3]\d s: as long`, w.operate("doctor").out)

		time.Sleep(time.Minute) // virtual
		w.insertMany(300, 1)
		require.Regexp(t, `none: the oplog begins \d\d s after the position, and the changes between are lost`, w.operate("status").out)
		tooEarly := w.operate("token", "rewind", "--to", before.UTC().Format(time.RFC3339))
		require.Equal(t, 1, tooEarly.code)
		require.Contains(t, tooEarly.err, "the oplog does not reach back to")
	})
}

// failCommand makes MongoDB answer the next command of a name with an error code.
func (w *producerWorld) failCommand(name string, code int) {
	w.Helper()
	require.NoError(w, w.events.Database().Client().Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 2}}}, // reads are tried twice
		{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{name}}, {Key: "errorCode", Value: code}}},
	}).Err())
}

// G4: what is changed by hand goes the way a new leader goes: nothing while a leader holds the lease; the next epoch;
// the old record kept. The changes behind the new position come again under the same ids (G3).
func TestG3G4OperatorRewindsAndTheNextLeaderPublishesAgain(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		p := w.start("a", nil)
		w.leads("a")
		w.insertMany(20, 2)
		w.published()
		time.Sleep(5 * time.Second) // virtual: the rewind ends between the two
		middle := time.Now()
		w.insertMany(30, 2)
		w.published()
		w.eventually("the checkpoint has it", func() bool { return w.checkpoint().Published == 50 })

		refused := w.operate("token", "rewind", "--to", middle.Format(time.RFC3339))
		require.Equal(t, 1, refused.code)
		require.Contains(t, refused.err, "refused: a leads stream")
		require.EqualValues(t, 1, w.checkpoint().Epoch)
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, w.names(), "a refusal leaves nothing behind")
		p.end()

		before := w.content("shop.events.json")
		done := w.operate("token", "rewind", "--to", middle.Format(time.RFC3339))
		require.Equal(t, 0, done.code, done.err)
		require.Contains(t, done.out, "shop.events.json.epoch-1")
		require.Contains(t, done.out, "under the same message ids")
		require.Equal(t, before, w.content("shop.events.json.epoch-1"), "the old record, byte for byte")
		require.EqualValues(t, 2, w.checkpoint().Epoch)
		require.Equal(t, "operator@desk", w.checkpoint().Leader)
		require.EqualValues(t, 50, w.checkpoint().Published)
		require.True(t, w.free(), "the lease is given back")

		taken := w.bus.Stats(topic)
		p = w.start("a", nil)
		w.leads("a")
		w.insertMany(1, 1)
		w.published()
		p.end()
		require.EqualValues(t, 3, w.checkpoint().Epoch)
		require.Equal(t, 30, w.bus.Stats(topic).Duplicates-taken.Duplicates, "exactly what came after that time, and the broker knows it")
	})
}

// G4: by force the lease is broken; the leader that held it is fenced off and leads again only from the new record.
func TestG4OperatorMovesTheTokenUnderALeaderByForce(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		p := w.start("a", nil)
		w.leads("a")
		first := w.checkpoint().Token["_data"].(string)
		w.insertMany(40, 4)
		w.published()
		w.eventually("the checkpoint has it", func() bool { return w.checkpoint().Published == 40 })

		refused := w.operate("token", "set", first)
		require.Equal(t, 1, refused.code)
		require.Contains(t, refused.err, "--force")

		done := w.operate("token", "set", first, "--force")
		require.Equal(t, 0, done.code, done.err)
		require.Contains(t, done.out, "broke the lease of a")
		require.Contains(t, done.out, "1 → 2")
		w.eventually("a leads again, from there", func() bool { r := w.checkpoint(); return r.Leader == "a" && r.Epoch == 3 })
		w.eventually("all of it came again", func() bool { return w.bus.Stats(topic).Duplicates == 40 })
		w.insertMany(10, 4)
		w.published()
		p.end()
	})
}

func TestOperatorRefusesTokensThatWouldLoseOrCannotBeReached(t *testing.T) {
	inProducerWorld(t, mongo.Options{OplogEntries: 50}, func(w *producerWorld) {
		start := time.Now()
		p := w.start("a", nil)
		w.leads("a")
		first := w.checkpoint().Token["_data"].(string)
		p.end()
		time.Sleep(time.Minute) // virtual
		w.insertMany(200, 4)
		last := w.lastToken()

		forward := w.operate("token", "set", last)
		require.Equal(t, 1, forward.code)
		require.Contains(t, forward.err, "would never be published")
		require.Equal(t, 0, w.operate("token", "set", "--forward", last).code)
		require.EqualValues(t, 2, w.checkpoint().Epoch)

		for _, wrong := range []struct {
			says string
			args []string
		}{
			{"cannot go on from this token", []string{"token", "set", first}},
			{"hex that begins with 82", []string{"token", "set", "AeARBpQ/AAAA"}},
			{"no Extended JSON document", []string{"token", "set", "{_data"}},
			{"the oplog does not reach back to", []string{"token", "rewind", "--to", start.Add(time.Second).Format(time.RFC3339)}},
			{"is no time in the past", []string{"token", "rewind", "--to", time.Now().Add(time.Hour).Format(time.RFC3339)}},
		} {
			got := w.operate(wrong.args...)
			require.Equal(t, 1, got.code, wrong.args)
			require.Contains(t, got.err, "refused")
			require.Contains(t, got.err, wrong.says)
		}
		require.EqualValues(t, 2, w.checkpoint().Epoch, "refusals change nothing")

		_, err := w.blobs().UploadBuffer(w.Context(), "sluice", "shop.events.json.epoch-2", []byte("of somebody"), nil)
		require.NoError(t, err)
		require.Contains(t, w.operate("token", "set", last).out, "kept as blob shop.events.json.epoch-2.2")
		require.Equal(t, "of somebody", w.content("shop.events.json.epoch-2"), "a copy replaces nothing")
		shown := w.operate("token", "show")
		require.Contains(t, shown.out, last)
	})
}

// lastToken is the token of now.
func (w *producerWorld) lastToken() string {
	w.Helper()
	stream, err := w.events.Watch(w.Context(), bson.A{})
	require.NoError(w, err)
	defer func() { _ = stream.Close(w.Context()) }()
	return stream.ResumeToken().Lookup("_data").StringValue()
}

func TestG4OperatorBreaksTheLease(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		p := w.start("a", nil)
		w.leads("a")
		broke := w.operate("lease", "break")
		require.Equal(t, 0, broke.code, broke.err)
		require.Contains(t, broke.out, "broke the lease that a held in epoch 1")
		w.eventually("the next epoch", func() bool { return w.checkpoint().Epoch == 2 })
		p.end()
		require.Contains(t, w.operate("lease", "break").out, "nothing to do")
	})
}

func TestOperatorDoctor(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		missing := w.operate("doctor")
		require.Equal(t, 1, missing.code)
		require.Regexp(t, `PROBLEM +blob container +it does not exist\. To fix it: create it`, missing.out)

		p := w.start("a", nil)
		w.leads("a")
		well := w.operate("doctor")
		require.Equal(t, 0, well.code)
		require.NotContains(t, well.out, "PROBLEM")
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, w.names(), "the scratch blob is removed")
		require.EqualValues(t, 1, w.checkpoint().Epoch, "looking changes nothing")
		p.end()

		require.Regexp(t, `ok +claim checks +not used`, well.out)
		claiming := func(c *producer.Config) { c.OnOversize = "claimcheck" }
		unclaimed := w.operateWith(claiming, "doctor")
		require.Equal(t, 1, unclaimed.code)
		require.Regexp(t, `PROBLEM +claim checks +the container does not exist\. To fix it: create it`, unclaimed.out)
		_, err := w.blobs().CreateContainer(t.Context(), "claim-checks", nil)
		require.NoError(t, err)
		require.Regexp(t, `ok +claim checks +the body of a large event can be kept`, w.operateWith(claiming, "doctor").out)

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
					";BlobEndpoint=http://" + blobHost + "/devstoreaccount1"
			}},
			{`PROBLEM +pre-images +required by the settings.*collMod`, func(c *producer.Config) { c.BeforeChange = "required" }},
		} {
			got := w.operateWith(sick.change, "doctor")
			require.Equal(t, 1, got.code)
			require.Regexp(t, sick.says, got.out)
			require.NotContains(t, got.out+got.err, secret)
		}
		w.failCommand("aggregate", 13)
		require.Regexp(t, `PROBLEM +change stream +the user may not open one on shop.events. To fix it: give the user`, w.operate("doctor").out)
	})
}

// The container of the world is there, and MongoDB is not.
func TestOperatorTellsWhatDoesNotAnswer(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		p := w.start("a", nil)
		w.leads("a")
		p.end()
		away := func(c *producer.Config) { c.MongoURI = "mongodb://user:hunter2@nowhere:27017/?replicaSet=rs0" }
		status := w.operateWith(away, "status")
		require.Equal(t, 1, status.code)
		require.Contains(t, status.out, "unknown: MongoDB does not answer")
		require.Contains(t, status.out, "none (the last was a)")
		doctor := w.operateWith(away, "doctor")
		require.Regexp(t, `PROBLEM +mongodb +it does not answer`, doctor.out)
		require.NotContains(t, status.out+status.err+doctor.out+doctor.err, "hunter2")

		stranger := func(c *producer.Config) { c.MongoURI = "mongodb://user:hunter2@mongo:27017/?replicaSet=rs0" }
		doctor = w.operateWith(stranger, "doctor")
		require.Regexp(t, `PROBLEM +mongodb +it does not accept the user\. To fix it: check user, password and authSource`, doctor.out)
		require.NotContains(t, doctor.out+doctor.err, "hunter2")

		w.blob.Fail(503, time.Hour)
		require.Equal(t, 1, w.operate("status").code)
		require.Regexp(t, `PROBLEM +blob container +storage answered 503`, w.operate("doctor").out)
	})
}
