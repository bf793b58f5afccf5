package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

// maxRecordBytes bounds what Read loads into memory, and therefore what is written. A record has
// about 1 KB, but its token contains the document's _id: it is part of a change event, which
// MongoDB limits to 16 MB.
const maxRecordBytes = 17 << 20

// Snapshot is the record as it was read, with the ETag for a conditional write.
type Snapshot struct {
	Record Record
	ETag   azcore.ETag
	// Leased reports whether a replica held the lease at that moment.
	Leased bool
	// LeaseState is the service's lease state, for operators: available, leased, expired, breaking
	// or broken.
	LeaseState string
}

// Blob is the checkpoint of one stream in Blob storage. Its methods are safe for concurrent use.
// The client must have been created with Retry.MaxRetries: -1, so that the SDK repeats no request:
// the repeat of a conditional write whose response was lost would be refused.
type Blob struct {
	stream      string
	container   *container.Client
	blob        *blockblob.Client
	beganMarker *blockblob.Client
}

// NewBlob returns the checkpoint blob of a stream: STREAM.json in the container.
func NewBlob(c *container.Client, stream string) *Blob {
	return &Blob{
		stream: stream, container: c, blob: c.NewBlockBlobClient(stream + ".json"), beganMarker: c.NewBlockBlobClient(stream + markSuffix),
	}
}

// Read reads the record. It needs no lease. Errors: [ErrNotFound], [ErrUnreadable], or the
// service's.
func (b *Blob) Read(ctx context.Context) (Snapshot, error) {
	response, err := b.blob.DownloadStream(ctx, nil)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read checkpoint: %w", translate(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRecordBytes+1))
	if err != nil {
		return Snapshot{}, fmt.Errorf("read checkpoint: %w", err)
	}
	if len(text) > maxRecordBytes {
		return Snapshot{}, fmt.Errorf("read checkpoint: %w: it is larger than %d bytes", ErrUnreadable, maxRecordBytes)
	}
	snapshot := Snapshot{ETag: *response.ETag}
	if err := json.Unmarshal(text, &snapshot.Record); err != nil {
		if !errors.Is(err, ErrUnreadable) {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return Snapshot{}, fmt.Errorf("read checkpoint: %w", err)
	}
	if found := snapshot.Record.Stream; found != b.stream {
		return Snapshot{}, fmt.Errorf("read checkpoint: %w: it belongs to stream %q", ErrUnreadable, found)
	}
	if state := response.LeaseState; state != nil {
		snapshot.LeaseState = string(*state)
		snapshot.Leased = *state == lease.StateTypeLeased || *state == lease.StateTypeBreaking
	}
	return snapshot, nil
}

// Create writes the first record of a stream, and creates the container if necessary. Errors:
// [ErrChanged] if the blob exists already, [ErrGone] if it once existed, or the service's.
func (b *Blob) Create(ctx context.Context, r Record) error {
	if err := b.Missing(ctx); err != nil {
		return fmt.Errorf("create checkpoint: %w", err)
	}
	return b.Restore(ctx, r)
}

// Restore is Create for a stream that has had a leader: it recreates the checkpoint. Errors:
// [ErrChanged] if the blob exists, or the service's.
func (b *Blob) Restore(ctx context.Context, r Record) error {
	conditions := &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
	}
	_, err := b.upload(ctx, r, conditions)
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		if _, err := b.container.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return fmt.Errorf("create checkpoint container: %w", err)
		}
		_, err = b.upload(ctx, r, conditions)
	}
	if err != nil {
		return fmt.Errorf("create checkpoint: %w", translate(err))
	}
	return nil
}

// Write replaces the record under the lease, if it still has this ETag. Errors: [ErrChanged],
// [ErrLeaseLost], [ErrNotFound], or the service's; after any other error it is unknown whether the
// record was written.
func (b *Blob) Write(ctx context.Context, r Record, leaseID string, etag azcore.ETag) (azcore.ETag, error) {
	written, err := b.upload(ctx, r, &blob.AccessConditions{
		LeaseAccessConditions:    &blob.LeaseAccessConditions{LeaseID: &leaseID},
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag},
	})
	if err != nil {
		return "", fmt.Errorf("write checkpoint: %w", translate(err))
	}
	return written, nil
}

func (b *Blob) upload(ctx context.Context, r Record, conditions *blob.AccessConditions) (azcore.ETag, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	if len(text) > maxRecordBytes {
		return "", fmt.Errorf("the record has %d bytes, of which no version reads more than %d", len(text), maxRecordBytes)
	}
	response, err := b.blob.Upload(ctx, streaming.NopCloser(bytes.NewReader(text)), &blockblob.UploadOptions{
		AccessConditions: conditions,
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: new("application/json")},
	})
	if err != nil {
		return "", err
	}
	return *response.ETag, nil
}

// Acquire acquires the free lease of a record that still has this ETag, for d (15 to 60 s, whole
// seconds). Errors: [ErrLeaseHeld], [ErrChanged], or the service's.
func (b *Blob) Acquire(ctx context.Context, leaseID string, d time.Duration, etag azcore.ETag) error {
	client, err := b.lease(leaseID)
	if err != nil {
		return err
	}
	_, err = client.AcquireLease(ctx, int32(d/time.Second), &lease.BlobAcquireOptions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag},
	})
	if err != nil {
		return fmt.Errorf("acquire lease: %w", translate(err))
	}
	return nil
}

// Renew restarts the lease's duration. Errors: [ErrLeaseLost], or the service's.
func (b *Blob) Renew(ctx context.Context, leaseID string) error {
	client, err := b.lease(leaseID)
	if err != nil {
		return err
	}
	if _, err := client.RenewLease(ctx, nil); err != nil {
		return fmt.Errorf("renew lease: %w", translate(err))
	}
	return nil
}

// Release releases the lease. Errors: [ErrLeaseLost], or the service's.
func (b *Blob) Release(ctx context.Context, leaseID string) error {
	client, err := b.lease(leaseID)
	if err != nil {
		return err
	}
	if _, err := client.ReleaseLease(ctx, nil); err != nil {
		return fmt.Errorf("release lease: %w", translate(err))
	}
	return nil
}

// Break breaks the lease of another holder at once, if the record still has this ETag: a holder
// that wrote meanwhile keeps it. Errors: [ErrChanged], or the service's; a free lease is not an
// error.
func (b *Blob) Break(ctx context.Context, etag azcore.ETag) error {
	client, err := b.lease("")
	if err != nil {
		return err
	}
	_, err = client.BreakLease(ctx, &lease.BlobBreakOptions{
		BreakPeriod:              new(int32(0)),
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag},
	})
	if err != nil && !bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
		return fmt.Errorf("break lease: %w", translate(err))
	}
	return nil
}

func (b *Blob) lease(id string) (*lease.BlobClient, error) {
	options := &lease.BlobClientOptions{}
	if id != "" {
		options.LeaseID = &id
	}
	client, err := lease.NewBlobClient(b.blob, options)
	if err != nil {
		return nil, fmt.Errorf("open lease client: %w", err)
	}
	return client, nil
}
