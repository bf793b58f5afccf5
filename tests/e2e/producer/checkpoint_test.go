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

// ran runs a leader for a while and stops it, so that the stream has a checkpoint.
func ran(w *world.World) {
	w.Helper()
	p := w.StartProducer("past", nil)
	w.Leads("past")
	w.InsertMany(10, 2)
	w.Published()
	p.End()
}

func deleteBlob(w *world.World, name string) {
	w.Helper()
	_, err := w.Blobs().DeleteBlob(w.Context(), "sluice", name, nil)
	require.NoError(w, err)
}

func putBlob(w *world.World, name, content string) {
	w.Helper()
	_, err := w.Blobs().UploadBuffer(w.Context(), "sluice", name, []byte(content), nil)
	require.NoError(w, err)
}

// G6: a checkpoint that is missing, or is something else, ends the producer with an error that
// gives the remedy. It is never silently recreated, and what is there is not changed.
func TestG6AnUnusableCheckpointIsNeverRecreated(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(w *world.World)
		says []string
	}{
		"deleted while no producer ran": {
			func(w *world.World) { deleteBlob(w, checkpointBlob) },
			[]string{"the stream has had a leader before", "producer token restore"},
		},
		"empty":     {func(w *world.World) { putBlob(w, checkpointBlob, "") }, []string{"not a checkpoint that this release can read"}},
		"cut off":   {func(w *world.World) { putBlob(w, checkpointBlob, blobContent(w, checkpointBlob)[:40]) }, []string{"not a checkpoint that this release can read"}},
		"corrupted": {func(w *world.World) { putBlob(w, checkpointBlob, "\x00\x01\x02") }, []string{"not a checkpoint that this release can read"}},
		"of a newer version": {
			func(w *world.World) {
				putBlob(w, checkpointBlob, strings.Replace(blobContent(w, checkpointBlob), `"schema":5`, `"schema":9`, 1))
			},
			[]string{"it has schema 9", "a newer release wrote it"},
		},
		"of another program": {func(w *world.World) { putBlob(w, checkpointBlob, `{"owner":"somebody"}`) }, []string{"it names no schema"}},
		"of another stream": {
			func(w *world.World) {
				putBlob(w, checkpointBlob, strings.Replace(blobContent(w, checkpointBlob), `"shop.events"`, `"shop.orders"`, 1))
			},
			[]string{`it belongs to stream "shop.orders"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				ran(w)
				c.harm(w)
				before := blobNames(w)
				w.InsertMany(10, 2)
				err := w.StartProducer("b", nil).Failed()
				for _, says := range c.says {
					require.ErrorContains(t, err, says)
				}
				require.Equal(t, append(before, checkpointBlob+".failure"), blobNames(w), "only the reason is written beside it")
				require.Equal(t, 10, w.Bus.Stats(world.Topic).Accepted, "nothing is published")
				status := operate(w, "status")
				require.Equal(t, 1, status.Code)
				require.Contains(t, status.Err, c.says[0])
				require.Regexp(t, `PROBLEM +checkpoint`, operate(w, "doctor").Out)
			})
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
		deleteBlob(w, checkpointBlob)
		deleteBlob(w, checkpointBlob+".began")
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
		a := w.StartProducer("a", nil)
		w.Leads("a")
		_, err := w.Blobs().DeleteContainer(w.Context(), "sluice", nil)
		require.NoError(t, err)
		require.ErrorContains(t, a.Failed(), "deleted while in use")
	})
}

// G4: a lease of another program is broken if the record does not change; with
// LEASE_TAKEOVER=expiry the producer waits for its end.
func TestG4ALeaseOfAForeignProgram(t *testing.T) {
	for takeover, leads := range map[string]bool{"break": true, "expiry": false} {
		t.Run(takeover, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				ran(w)
				foreign := w.Blobs().ServiceClient().NewContainerClient("sluice").NewBlobClient(checkpointBlob)
				holder, err := lease.NewBlobClient(foreign, &lease.BlobClientOptions{LeaseID: new(uuid.NewString())})
				require.NoError(t, err)
				_, err = holder.AcquireLease(w.Context(), -1, nil)
				require.NoError(t, err)

				b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { c.LeaseTakeover = takeover })
				w.InsertMany(10, 2)
				if leads {
					w.Leads("b")
					require.Contains(t, b.Log.Text(), "breaking its lease")
				} else {
					w.Pass(5 * time.Minute)
					require.Equal(t, "past", w.Checkpoint().Leader)
					_, err = holder.ReleaseLease(w.Context(), nil)
					require.NoError(t, err)
				}
				w.Published()
				b.End()
			})
		})
	}
}

// stumbling refuses the first checkpoint with a token, as busy storage does.
type stumbling struct {
	next    policy.Transporter
	refused atomic.Int64
	times   int64
}

func (s *stumbling) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"resumeToken":{`)) && s.refused.Add(1) <= s.times {
			return &http.Response{
				Status: "503 Server Busy", StatusCode: http.StatusServiceUnavailable, Request: r, Body: http.NoBody,
				Header: http.Header{"X-Ms-Error-Code": {"ServerBusy"}},
			}, nil
		}
	}
	return s.next.Do(r)
}

// If storage is busy when the beginning of a new stream is written, the leader retries, as with any
// other heartbeat. Changes made in the meantime are published afterwards.
func TestG1ABusyStorageDoesNotEndANewStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		busy := &stumbling{times: 3}
		a := w.StartProducer("a", func(_ *producer.Config, o *producer.Options) {
			busy.next = o.Blob.Transport
			o.Blob.Transport = busy
		})
		w.Eventually("the first checkpoint is refused", func() bool { return busy.refused.Load() > 0 })
		w.InsertMany(10, 2)
		w.Leads("a")
		w.Published()
		require.EqualValues(t, 1, w.Checkpoint().Epoch)
		a.End()
		require.Greater(t, busy.refused.Load(), busy.times)
	})
}

// G1: the token of a document with a large _id makes a large record. Every record that can be
// written can be read, by a standby and by the next leader.
func TestG1ACheckpointBehindALargeIDIsRead(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		large := func(c *producer.Config, _ *producer.Options) { c.OnOversize = "claimcheck" }
		a := w.StartProducer("a", large)
		w.Leads("a")
		w.Inserted["x"]++
		w.InsertDocument(bson.D{{Key: "_id", Value: strings.Repeat("x", 600_000)}, {Key: "aggregateId", Value: "x"}, {Key: "version", Value: 1}})
		w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 1 })
		a.MongoPlug.Pull() // no later token is written
		a.Vanish()
		b := w.StartProducer("b", large)
		w.Leads("b")
		b.End()
	})
}
