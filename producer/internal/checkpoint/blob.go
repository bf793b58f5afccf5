package checkpoint

import (
	"bytes"
	"context"
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

	"github.com/sluice-cdc/sluice/producer/store"
)

// absent returns the condition that a blob does not exist.
func absent() *blob.AccessConditions {
	return &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
	}
}

// unchanged returns the condition that a blob has this ETag.
func unchanged(tag store.Tag) *blob.ModifiedAccessConditions {
	return &blob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(tag))}
}

func upload(ctx context.Context, to *blockblob.Client, text []byte, conditions *blob.AccessConditions) (store.Tag, error) {
	response, err := to.Upload(ctx, streaming.NopCloser(bytes.NewReader(text)), &blockblob.UploadOptions{
		AccessConditions: conditions,
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: new("application/json")},
	})
	if err != nil {
		return "", translate(err)
	}
	return store.Tag(*response.ETag), nil
}

func download(ctx context.Context, from *blockblob.Client) ([]byte, blob.DownloadStreamResponse, error) {
	response, err := from.DownloadStream(ctx, nil)
	if err != nil {
		return nil, response, translate(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRecordBytes+1))
	if err == nil && len(text) > maxRecordBytes {
		err = fmt.Errorf("%w: it is larger than %d bytes", ErrUnreadable, maxRecordBytes)
	}
	return text, response, err
}

// leasedBlob is a record in a blob, with the lease of the service.
type leasedBlob struct {
	container *container.Client
	blob      *blockblob.Client
}

var _ leasedObject = (*leasedBlob)(nil)

func (b *leasedBlob) read(ctx context.Context) ([]byte, Snapshot, error) {
	text, response, err := download(ctx, b.blob)
	if err != nil {
		return nil, Snapshot{}, err
	}
	snapshot := Snapshot{Tag: store.Tag(*response.ETag)}
	if state := response.LeaseState; state != nil {
		snapshot.LeaseState = string(*state)
		snapshot.Leased = *state == lease.StateTypeLeased || *state == lease.StateTypeBreaking
	}
	return text, snapshot, nil
}

// create also creates the container if necessary.
func (b *leasedBlob) create(ctx context.Context, text []byte) error {
	_, err := upload(ctx, b.blob, text, absent())
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		if _, err := b.container.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return fmt.Errorf("create the container: %w", err)
		}
		_, err = upload(ctx, b.blob, text, absent())
	}
	return err
}

func (b *leasedBlob) write(ctx context.Context, text []byte, leaseID string, tag store.Tag) (store.Tag, error) {
	return upload(ctx, b.blob, text, &blob.AccessConditions{
		LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &leaseID}, ModifiedAccessConditions: unchanged(tag),
	})
}

func (b *leasedBlob) acquire(ctx context.Context, leaseID string, d time.Duration, tag store.Tag) error {
	_, err := b.lease(leaseID).AcquireLease(ctx, int32(d/time.Second), &lease.BlobAcquireOptions{ModifiedAccessConditions: unchanged(tag)})
	return translate(err)
}

func (b *leasedBlob) renew(ctx context.Context, leaseID string) error {
	_, err := b.lease(leaseID).RenewLease(ctx, nil)
	return translate(err)
}

func (b *leasedBlob) release(ctx context.Context, leaseID string) error {
	_, err := b.lease(leaseID).ReleaseLease(ctx, nil)
	return translate(err)
}

func (b *leasedBlob) breakLease(ctx context.Context, tag store.Tag) error {
	_, err := b.lease("").BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32(0)), ModifiedAccessConditions: unchanged(tag)})
	if bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
		return nil
	}
	return translate(err)
}

func (b *leasedBlob) lease(id string) *lease.BlobClient {
	client, _ := lease.NewBlobClient(b.blob, &lease.BlobClientOptions{LeaseID: &id}) // it fails only if it has to make an id
	return client
}

// containerStore is a store of blobs. It creates no container.
type containerStore struct{ container *container.Client }

var _ store.Store = containerStore{}

// Container returns the store of a container's blobs. Their tags are ETags, which Blob storage
// never repeats.
func Container(c *container.Client) store.Store { return containerStore{c} }

// Get implements [store.Store].
func (s containerStore) Get(ctx context.Context, name string) (store.Object, error) {
	text, response, err := download(ctx, s.container.NewBlockBlobClient(name))
	if err != nil {
		return store.Object{}, err
	}
	return store.Object{Data: text, Tag: store.Tag(*response.ETag)}, nil
}

// Put implements [store.Store].
func (s containerStore) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	return upload(ctx, s.container.NewBlockBlobClient(name), data, &blob.AccessConditions{ModifiedAccessConditions: unchanged(tag)})
}

// Create implements [store.Store].
func (s containerStore) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	return upload(ctx, s.container.NewBlockBlobClient(name), data, absent())
}

// List implements [store.Store].
func (s containerStore) List(ctx context.Context, prefix string) (names []string, err error) {
	for pager := s.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, translate(err)
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names, nil
}

// Delete implements [store.Store].
func (s containerStore) Delete(ctx context.Context, name string) error {
	_, err := s.container.NewBlobClient(name).Delete(ctx, nil)
	return translate(err)
}
