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

// markSuffix is the suffix of the blob beside a checkpoint which records that the stream has had a
// leader. No stream's own blob can have such a name: those end in .json.
const markSuffix = ".json.began"

// ErrGone reports that the checkpoint does not exist although its marker shows that the stream has
// had a leader: it was deleted. A new checkpoint would lose the changes since, so an operator must
// decide.
var ErrGone = errors.New("the checkpoint blob is gone, and the stream has had a leader before: it was deleted")

// mark is the content of the marker, for operators.
type mark struct {
	Stream  string    `json:"stream"`
	BeganAt time.Time `json:"beganAt"`
	Note    string    `json:"note"`
}

// MarkBegan records permanently that the stream has a leader: from now on a missing checkpoint was
// deleted. It is called before the first epoch is written. Errors are the service's.
func (b *Blob) MarkBegan(ctx context.Context) error {
	text, err := json.Marshal(mark{
		Stream: b.stream, BeganAt: time.Now().UTC(),
		Note: "While this blob exists, a missing checkpoint is not recreated.",
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

// Missing returns what a missing checkpoint means: nil for a new stream, [ErrGone] for a stream
// that has had a leader, [ErrChanged] if the checkpoint was created meanwhile, or the service's
// error.
func (b *Blob) Missing(ctx context.Context) error {
	_, err := b.beganMarker.GetProperties(ctx, nil)
	switch err = translate(err); {
	case err == nil:
		// The marker may have been written just now, by a producer that created the checkpoint
		// before.
		switch _, err := b.blob.GetProperties(ctx, nil); {
		case err == nil:
			return ErrChanged
		case !errors.Is(translate(err), ErrNotFound):
			return fmt.Errorf("read the checkpoint again: %w", translate(err))
		}
		return fmt.Errorf("%w; stop the producers, and recreate it with `producer token restore`, from a copy, or from a time before the "+
			"deletion (if positions are counted and there is no copy: use another STREAM_NAME, with new read models)", ErrGone)
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return fmt.Errorf("read the stream's marker: %w", err)
}
