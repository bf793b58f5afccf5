package producer_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

const checkpointBlob = "shop.events.json"

// deleteBlobs deletes blobs beside the checkpoint.
func deleteBlobs(w *world.World, names ...string) {
	w.Helper()
	for _, name := range names {
		_, err := w.Blobs().DeleteBlob(w.Context(), "sluice", name, nil)
		require.NoError(w, err)
	}
}

func putBlob(w *world.World, container, name, content string) {
	w.Helper()
	_, err := w.Blobs().UploadBuffer(w.Context(), container, name, []byte(content), nil)
	require.NoError(w, err)
}

// amend replaces a text of a blob, which must contain it.
func amend(w *world.World, container, name, text, by string) {
	w.Helper()
	content := blobContent(w, container, name)
	require.Contains(w, content, text)
	putBlob(w, container, name, strings.Replace(content, text, by, 1))
}

// G6: a checkpoint that is missing, or is something else, ends the producer with an error that
// gives the remedy. It is never silently recreated, and what is there is not changed.
func TestG6AnUnusableCheckpointIsNeverRecreated(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(w *world.World)
		want []string
	}{
		"deleted while no producer ran": {
			func(w *world.World) { deleteBlobs(w, checkpointBlob) },
			[]string{"the stream has had a leader before", "producer token restore"},
		},
		"empty": {
			func(w *world.World) { putBlob(w, "sluice", checkpointBlob, "") },
			[]string{"not a checkpoint that this release can read"},
		},
		"cut off": {
			func(w *world.World) {
				putBlob(w, "sluice", checkpointBlob, blobContent(w, "sluice", checkpointBlob)[:40])
			},
			[]string{"not a checkpoint that this release can read"},
		},
		"corrupted": {
			func(w *world.World) { putBlob(w, "sluice", checkpointBlob, "\x00\x01\x02") },
			[]string{"not a checkpoint that this release can read"},
		},
		"of a newer version": {
			func(w *world.World) { amend(w, "sluice", checkpointBlob, `"schema":5`, `"schema":9`) },
			[]string{"it has schema 9", "a newer release wrote it"},
		},
		"of another program": {
			func(w *world.World) { putBlob(w, "sluice", checkpointBlob, `{"owner":"another program"}`) },
			[]string{"it names no schema"},
		},
		"of another stream": {
			func(w *world.World) { amend(w, "sluice", checkpointBlob, `"shop.events"`, `"shop.orders"`) },
			[]string{`it belongs to stream "shop.orders"`},
		},
	} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			ran(w)
			c.harm(w)
			before := blobNames(w, "sluice")
			w.InsertMany(10, 2)
			err := w.StartProducer("b", nil).Failed()
			for _, want := range c.want {
				require.ErrorContains(w, err, want)
			}
			require.Equal(w, append(before, checkpointBlob+".failure"), blobNames(w, "sluice"), "only the reason is written beside it")
			require.Equal(w, 10, w.Bus.Stats(world.Topic).Accepted, "nothing is published")
			operate(w, "status").fails(c.want[0])
			require.Regexp(w, `PROBLEM +checkpoint`, operate(w, "doctor").Out)
		})
	}
}

// To begin again is an operator's decision: without the marker the stream is a new one, and with a
// time before the deletion nothing is lost. The message ids are the same.
func TestG1AStreamWithADeletedCheckpointRestartsByDecision(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		began := time.Now()
		w.Pass(2 * time.Second)
		ran(w)
		deleteBlobs(w, checkpointBlob, checkpointBlob+".began")
		w.InsertMany(10, 2)
		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { c.StartFrom, c.StartAt = "timestamp", began })
		w.Published()
		b.End()
		require.Contains(t, b.Log.Text(), "created a new one")
		require.Equal(t, 10, w.Bus.Stats(world.Topic).Duplicates)
	})
}

// A missing container is created, if that is allowed; one that is deleted in use ends the producer.
func TestG6AContainerDeletedInUseIsNotRecreated(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		_, err := w.Blobs().DeleteContainer(w.Context(), "sluice", nil)
		require.NoError(t, err)
		require.ErrorContains(t, a.Failed(), "deleted while in use")
		require.Empty(t, blobNames(w, "sluice"))
	})
}

// G4: a lease of another program is broken if the record does not change; with
// LEASE_TAKEOVER=expiry the producer waits for its end.
func TestG4ALeaseOfAForeignProgram(t *testing.T) {
	for takeover, leads := range map[string]bool{"break": true, "expiry": false} {
		subtest(t, takeover, world.Options{}, func(w *world.World) {
			ran(w)
			foreign := w.Blobs().ServiceClient().NewContainerClient("sluice").NewBlobClient(checkpointBlob)
			holder, err := lease.NewBlobClient(foreign, &lease.BlobClientOptions{LeaseID: new(uuid.NewString())})
			require.NoError(w, err)
			_, err = holder.AcquireLease(w.Context(), -1, nil)
			require.NoError(w, err)

			b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { c.LeaseTakeover = takeover })
			w.InsertMany(10, 2)
			if leads {
				w.Leads("b")
				require.Contains(w, b.Log.Text(), "breaking its lease")
			} else {
				w.Pass(5 * time.Minute)
				require.Equal(w, "past", w.Checkpoint().Leader)
				_, err = holder.ReleaseLease(w.Context(), nil)
				require.NoError(w, err)
			}
			w.Published()
			b.End()
		})
	}
}

// If storage is busy when the beginning of a new stream is written, the leader retries, as with any
// other heartbeat. Changes made in the meantime are published afterwards.
func TestG1ABusyStorageDoesNotEndANewStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		const times = 3
		var refused atomic.Int64
		a := w.StartProducer("a", throughStorage(func(r *http.Request, next policy.Transporter) (*http.Response, error) {
			if r.Method == http.MethodPut && r.Body != nil {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"resumeToken":{`)) && refused.Add(1) <= times {
					return failure(r, http.StatusServiceUnavailable, "ServerBusy"), nil
				}
			}
			return next.Do(r)
		}))
		w.Eventually("the first checkpoint with a token is refused", func() bool { return refused.Load() > 0 })
		w.InsertMany(10, 2)
		w.Leads("a")
		w.Published()
		require.EqualValues(t, 1, w.Checkpoint().Epoch)
		a.End()
		require.Greater(t, refused.Load(), int64(times))
	})
}

// G1: the token of a document with a large _id makes a large record. Every record that can be
// written can be read, by a standby and by the next leader.
func TestG1ACheckpointBehindALargeIDIsRead(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		large := func(c *producer.Config, _ *producer.Options) { c.OnOversize = "claimcheck" }
		a := startLeader(w, "a", large)
		w.Inserted["x"]++
		w.InsertDocument(bson.D{{Key: "_id", Value: strings.Repeat("x", 600_000)}, {Key: "aggregateId", Value: "x"}, {Key: "version", Value: 1}})
		checkpointed(w, 1)
		a.MongoPlug.Pull() // no later token is written
		a.Vanish()
		startLeader(w, "b", large).End()
	})
}
