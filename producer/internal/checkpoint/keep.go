package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
)

// maxCopies bounds how many copies of one epoch are kept: an operator who needs more has lost count, too.
const maxCopies = 100

// KeepCopy writes a copy of a record beside it, for people to go back to, and returns the copy's name: STREAM.json.epoch-N,
// followed by a number if that exists. It replaces nothing. No stream's own blob can have such a name: those end
// in .json. Errors: [ErrNotFound] without the container, or the service's.
func (b *Blob) KeepCopy(ctx context.Context, r Record) (name string, err error) {
	stem := fmt.Sprintf("%s.json.epoch-%d", r.Stream, r.Epoch)
	for n := 1; n <= maxCopies; n++ {
		name = stem
		if n > 1 {
			name = fmt.Sprintf("%s.%d", stem, n)
		}
		beside := &Blob{container: b.container, blob: b.container.NewBlockBlobClient(name)}
		_, err = beside.put(ctx, r, &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		})
		if err = translate(err); !errors.Is(err, ErrChanged) {
			break
		}
	}
	if errors.Is(err, ErrChanged) {
		return "", fmt.Errorf("keep a copy of the checkpoint: there are %d copies of epoch %d already; remove those that nobody needs", maxCopies, r.Epoch)
	}
	if err != nil {
		return "", fmt.Errorf("keep a copy of the checkpoint as %s: %w", name, err)
	}
	return name, nil
}
