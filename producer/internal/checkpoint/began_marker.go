package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

// markSuffix names the blob beside a checkpoint that says that the stream has had a leader. No stream's own blob can have
// such a name: those end in .json.
const markSuffix = ".json.began"

// ErrGone: the checkpoint does not exist, and its mark says that the stream has had a leader: it was deleted. Beginning
// anew would lose what was changed since, so that is left to people.
var ErrGone = errors.New("the checkpoint blob is gone, and the stream has had a leader before: somebody deleted it")

// mark is the content of the mark, for people.
type mark struct {
	Stream  string    `json:"stream"`
	BeganAt time.Time `json:"beganAt"`
	Note    string    `json:"note"`
}

// MarkBegan says that the stream has a leader, once and for all: from now on a checkpoint that is missing was deleted. It is
// called before the first epoch is written. Errors: the service's.
func (b *Blob) MarkBegan(ctx context.Context) error {
	text, err := json.Marshal(mark{
		Stream: b.stream, BeganAt: time.Now().UTC(),
		Note: "While this blob exists, a missing checkpoint is not made anew.",
	})
	if err != nil {
		return err
	}
	_, err = b.beganMarker.Upload(ctx, streaming.NopCloser(bytes.NewReader(text)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		},
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: new("application/json")},
	})
	if err = translate(err); err != nil && !errors.Is(err, ErrChanged) {
		return fmt.Errorf("mark the stream as begun: %w", err)
	}
	return nil
}

// Missing says what a checkpoint means that was not found: nil for a new stream, [ErrGone] for one that has had a leader,
// [ErrChanged] for one that was made meanwhile, or the service's error.
func (b *Blob) Missing(ctx context.Context) error {
	_, err := b.beganMarker.GetProperties(ctx, nil)
	switch err = translate(err); {
	case err == nil:
		// The mark may be of this very moment: whoever made it made the checkpoint before, so that counts.
		switch _, err := b.blob.GetProperties(ctx, nil); {
		case err == nil:
			return ErrChanged
		case !errors.Is(translate(err), ErrNotFound):
			return fmt.Errorf("look for the checkpoint again: %w", translate(err))
		}
		return fmt.Errorf("%w; stop the producers, and make it anew with `producer token restore`, from a copy, or from a time before the "+
			"deletion (where positions are counted, without a copy: another STREAM_NAME, with new read models)", ErrGone)
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return fmt.Errorf("look for the mark of the stream: %w", err)
}
