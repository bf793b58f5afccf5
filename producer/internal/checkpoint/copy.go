package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// maxCopies is how many copies of one epoch are kept.
const maxCopies = 100

// KeepCopy writes a copy of a record beside it, for operators, and returns the copy's name:
// STREAM.json.epoch-N, followed by a number if that name is taken. It replaces nothing. No stream's
// own blob can have such a name: those end in .json. Errors: [ErrNotFound] without the container,
// or the service's.
func (b *Blob) KeepCopy(ctx context.Context, r Record) (name string, err error) {
	stem := fmt.Sprintf("%s.json.epoch-%d", r.Stream, r.Epoch)
	for n := 1; n <= maxCopies; n++ {
		name = stem
		if n > 1 {
			name = fmt.Sprintf("%s.%d", stem, n)
		}
		beside := &Blob{container: b.container, blob: b.container.NewBlockBlobClient(name)}
		_, err = beside.upload(ctx, r, &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		})
		if err = translate(err); !errors.Is(err, ErrChanged) {
			break
		}
	}
	if errors.Is(err, ErrChanged) {
		return "", fmt.Errorf("keep a copy of the checkpoint: there are %d copies of epoch %d already; delete those that are not needed", maxCopies, r.Epoch)
	}
	if err != nil {
		return "", fmt.Errorf("keep a copy of the checkpoint as %s: %w", name, err)
	}
	return name, nil
}

// copyTime is the layout of the time in a copy's name. It sorts.
const copyTime = "2006-01-02T15-04-05Z"

// CopyTo writes a copy of a record into another container, under its time, and returns its name:
// STREAM.json.2006-01-02T15-04-05Z. It replaces nothing: a second copy in the same second is an
// error. Errors: [ErrNotFound] without the container, [ErrChanged] if the name is taken, or the
// service's.
func (b *Blob) CopyTo(ctx context.Context, into *container.Client, r Record, at time.Time) (name string, err error) {
	name = fmt.Sprintf("%s.json.%s", r.Stream, at.UTC().Format(copyTime))
	there := &Blob{container: into, blob: into.NewBlockBlobClient(name)}
	_, err = there.upload(ctx, r, &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
	})
	if err = translate(err); err != nil {
		return "", fmt.Errorf("copy the checkpoint to %s: %w", name, err)
	}
	return name, nil
}

// NewestCopy returns the name of the stream's newest copy made by [Blob.CopyTo] in a container.
// Errors: [ErrNotFound] if it does not exist, or the service's.
func (b *Blob) NewestCopy(ctx context.Context, in *container.Client) (name string, err error) {
	prefix := b.stream + ".json."
	for pager := in.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return "", fmt.Errorf("list copies of the checkpoint: %w", translate(err))
		}
		for _, item := range page.Segment.BlobItems {
			if _, err := time.Parse(copyTime, strings.TrimPrefix(*item.Name, prefix)); err == nil {
				name = max(name, *item.Name)
			}
		}
	}
	if name == "" {
		return "", fmt.Errorf("find a copy of the checkpoint: %w", ErrNotFound)
	}
	return name, nil
}

// ReadCopy reads a copy of the stream's record. Errors are those of [Blob.Read].
func (b *Blob) ReadCopy(ctx context.Context, in *container.Client, name string) (Record, error) {
	there := &Blob{stream: b.stream, container: in, blob: in.NewBlockBlobClient(name)}
	snapshot, err := there.Read(ctx)
	if err != nil {
		return Record{}, fmt.Errorf("copy %s: %w", name, err)
	}
	return snapshot.Record, nil
}
