// Package claim stores the bodies of changes that are too large for a message in a container of
// Blob storage: the producer stores a body before it sends the message, and the projector gets it
// when it receives the message.
//
// Guaranteed: [Store.Get] returns the body that was given to [Store.Put], or an error. Any
// publisher may put the same body of the same change again.
//
// Not guaranteed: that a body is stored for ever. This package deletes no bodies; the container's
// lifecycle rule does. It must keep them for at least as long as a message can live, including its
// time in the dead-letter queue.
package claim

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Store is a container of bodies. It is safe for concurrent use.
type Store struct {
	container *container.Client
}

// NewStore keeps bodies in the container of that name; nothing is requested before the first use.
func NewStore(client *azblob.Client, name string) *Store {
	return &Store{container: client.ServiceClient().NewContainerClient(name)}
}

// Put stores the body of a change, which must have one, and returns the claim to it. It creates the
// container if that is missing. After an error, the body may have been stored or not. Put may be
// retried.
func (s *Store) Put(ctx context.Context, c envelope.Change) (envelope.Claim, error) {
	claim := envelope.NewClaim(c)
	if err := s.Keep(ctx, claim.Blob, string(envelope.BSON), c.Body); err != nil {
		return envelope.Claim{}, err
	}
	return claim, nil
}

// Keep stores content under a name, and replaces what was stored under it. It creates the container
// if that is missing. After an error, the content may have been stored or not. Keep may be retried.
func (s *Store) Keep(ctx context.Context, name, contentType string, content []byte) error {
	err := s.upload(ctx, name, contentType, content)
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		if _, err = s.container.Create(ctx, nil); err == nil || bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			err = s.upload(ctx, name, contentType, content)
		}
	}
	if err != nil {
		return fmt.Errorf("store %d bytes in blob %s: %w", len(content), name, err)
	}
	return nil
}

// upload sends one Put Blob: the blob is stored as a whole or not at all.
func (s *Store) upload(ctx context.Context, name, contentType string, content []byte) error {
	_, err := s.container.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)),
		&blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &contentType}})
	return err
}

// Get sets the body of the change to the stored one. An [*envelope.Error] is permanent: the blob is
// gone from its container, or contains something else. Any other error may be retried, perhaps
// after a setting or a permission was corrected.
func (s *Store) Get(ctx context.Context, c *envelope.Change) error {
	response, err := s.container.NewBlobClient(c.Claim.Blob).DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return &envelope.Error{
			Reason:      envelope.ReasonClaimMissing,
			Description: fmt.Sprintf("the body of %d bytes was kept in blob %s, which is gone", c.Claim.Size, c.Claim.Blob),
			Err:         err,
		}
	}
	if err != nil {
		return fmt.Errorf("get body from blob %s: %w", c.Claim.Blob, err)
	}
	defer response.Body.Close()
	if response.ContentLength != nil && *response.ContentLength != c.Claim.Size {
		return c.Claim.WrongSize(*response.ContentLength) // without loading it: its size is unbounded
	}
	body := make([]byte, c.Claim.Size)
	if _, err := io.ReadFull(response.Body, body); err != nil {
		return fmt.Errorf("get body from blob %s: %w", c.Claim.Blob, err)
	}
	return c.Redeem(body)
}
