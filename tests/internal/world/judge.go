package world

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// Took returns the messages that the broker accepted, including duplicates.
func (w *World) Took() []servicebus.Accepted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clip(w.accepted)
}

// Published waits until the broker has accepted every event, and judges.
func (w *World) Published() {
	w.Helper()
	w.Eventually("everything inserted is published", func() bool { return w.Bus.Stats(Topic).Accepted >= w.Total() })
	w.Judge()
}

// Judge compares what the broker accepted with what was inserted: every version of an aggregate
// once and in order (G1, G2), no position lower than the one before, and every repeat dropped by
// its message id (G3).
func (w *World) Judge() {
	w.Helper()
	reached, positions := map[string]int{}, map[string]string{}
	for _, a := range w.Took() {
		if a.Duplicate {
			continue // the broker recognised it: it has the same message id and is not delivered again
		}
		aggregate := a.Properties["cloudEvents_subject"].(string)
		reached[aggregate]++
		require.EqualValues(w, reached[aggregate], a.Properties["version"], "aggregate %s", aggregate)
		position := a.Properties[envelope.PropPosition].(string)
		require.Less(w, positions[aggregate], position)
		positions[aggregate] = position
	}
	require.Equal(w, w.Inserted, reached)
}

// CheckpointRecord is the checkpoint blob as any client can read it.
type CheckpointRecord struct {
	Schema     int            `json:"schema"`
	Translated bool           `json:"translated"`
	Epoch      int64          `json:"epoch"`
	Leader     string         `json:"leader"`
	SessionKey string         `json:"sessionKey"`
	Position   string         `json:"position"`
	Published  int64          `json:"published"`
	Token      map[string]any `json:"resumeToken"`
	// Snapshot is that which is being published; nil without one.
	Snapshot *struct {
		Chunk *struct {
			At   struct{ T, I uint32 } `json:"at"`
			Base uint32                `json:"base"`
		} `json:"chunk"`
	} `json:"snapshot"`
}

// InChunk reports whether some rows of a snapshot's chunk are published, and others are not.
func (r CheckpointRecord) InChunk() bool {
	if r.Snapshot == nil || r.Snapshot.Chunk == nil {
		return false
	}
	c := r.Snapshot.Chunk
	return r.Position >= envelope.Boundary(bson.Timestamp{T: c.At.T, I: c.At.I}, c.Base)
}

// Checkpoint returns the checkpoint of the stream shop.events.
func (w *World) Checkpoint() CheckpointRecord {
	w.Helper()
	return w.CheckpointOf("shop.events")
}

// CheckpointOf returns the checkpoint of a stream.
func (w *World) CheckpointOf(stream string) CheckpointRecord {
	w.Helper()
	return ReadCheckpoint(w.T, w.Blobs(), stream)
}

// ReadCheckpoint returns a stream's checkpoint; zero without one.
func ReadCheckpoint(t *testing.T, blobs *azblob.Client, stream string) (r CheckpointRecord) {
	t.Helper()
	response, err := blobs.DownloadStream(t.Context(), "sluice", stream+".json", nil)
	if err != nil {
		return CheckpointRecord{}
	}
	defer response.Body.Close()
	require.NoError(t, json.NewDecoder(response.Body).Decode(&r))
	return r
}

// Blobs returns a client of the world's Blob storage.
func (w *World) Blobs() *azblob.Client {
	w.Helper()
	client, err := azblob.NewClientFromConnectionString(blob.ConnectionString(BlobHost), BlobOptions(w.Blob.Transport()))
	require.NoError(w, err)
	return client
}

// Timeline is a document of the projection of that name; Events is 0 without one.
type Timeline struct {
	Events int64            `bson:"events"`
	Types  map[string]int64 `bson:"types"`
	First  string           `bson:"firstOccurredAt"`
	Last   string           `bson:"lastOccurredAt"`
	Type   string           `bson:"lastType"`
	Guard  struct {
		Position string `bson:"position"`
		Version  int64  `bson:"version"`
	} `bson:"_sluice"`
}

// TimelineOf returns an aggregate's timeline in the read model.
func (w *World) TimelineOf(aggregate string) (doc Timeline) {
	w.Helper()
	doc, err := ReadTimeline(w.Context(), w.Client, aggregate)
	if err != nil {
		require.ErrorIs(w, err, driver.ErrNoDocuments)
	}
	return doc
}

// ReadTimeline returns an aggregate's timeline, or the driver's error.
func ReadTimeline(ctx context.Context, client *driver.Client, aggregate string) (doc Timeline, err error) {
	err = client.Database(ReadModel).Collection("timeline").FindOne(ctx, bson.D{{Key: "_id", Value: aggregate}}).Decode(&doc)
	return doc, err
}
