package projector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// maxCheckpoint bounds what is read of a checkpoint, in bytes.
const maxCheckpoint = 1 << 20

// stream reads what the producer's checkpoint records of the stream that the read model is fed by.
func (c *Config) stream(ctx context.Context, o Options) (s build.Stream, err error) {
	if c.Blob == (azure.Blob{}) {
		return s, settings.Problems{errors.New("BLOB_ACCOUNT_URL: is required for this command, with BLOB_CONTAINER and STREAM_NAME as the producer has them: " +
			"a build reads from the producer's checkpoint which stream goes on behind it")}
	}
	name := cmp.Or(c.Stream, c.SourceDatabase+"."+c.SourceCollection)
	var blobOptions azblob.ClientOptions
	if o.Blob != nil {
		blobOptions = *o.Blob
	}
	if o.Credential == nil && c.AccountURL != "" {
		if o.Credential, err = azure.Credential(); err != nil {
			return s, err
		}
	}
	client, err := c.Blob.Client(o.Credential, &blobOptions)
	if err != nil {
		return s, err
	}
	text := make([]byte, maxCheckpoint)
	n, err := client.DownloadBuffer(ctx, c.CheckpointContainer, name+".json", text, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		return s, fmt.Errorf("stream %s has no checkpoint in container %s: a read model is built beside a stream that a producer publishes. "+
			"Start the producer first, or correct STREAM_NAME and BLOB_CONTAINER", name, c.CheckpointContainer)
	}
	if err != nil {
		return s, fmt.Errorf("read the checkpoint of stream %s: %w", name, err)
	}
	var record struct {
		Stream   string `json:"stream"`
		Position string `json:"position"`
		Snapshot *struct {
			Done bool `json:"done"`
		} `json:"snapshot"`
		Reading struct {
			AggregateIDPath string `json:"aggregateIdPath"`
			VersionPath     string `json:"versionPath"`
			Pipeline        string `json:"pipeline"`
			Operations      string `json:"operations"`
			Collection      string `json:"collection"`
		} `json:"reading"`
	}
	if err := json.NewDecoder(bytes.NewReader(text[:n])).Decode(&record); err != nil {
		return s, fmt.Errorf("read the checkpoint of stream %s: %w", name, err)
	}
	r := record.Reading
	if record.Position == "" || r.AggregateIDPath == "" && r.Operations == "" {
		return s, fmt.Errorf("the checkpoint of stream %s has no position as yet, or an earlier version wrote it: let its producer lead for a moment", name)
	}
	return build.Stream{
		Name: record.Stream, Position: record.Position, Snapshot: record.Snapshot != nil && !record.Snapshot.Done,
		Collection: r.Collection, AggregatePath: r.AggregateIDPath, VersionPath: r.VersionPath, Pipeline: r.Pipeline, Operations: r.Operations,
	}, nil
}
