package state

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// BlockSource is the source from which Put Block List takes a block.
type BlockSource int

// The three lists of a Put Block List request [put-block-list].
const (
	FromLatest      BlockSource = iota // staged, else committed
	FromCommitted                      // of the blob as it is
	FromUncommitted                    // staged since
)

// BlockRef is one line of a block list.
type BlockRef struct {
	ID     string
	Source BlockSource
}

// Stage keeps a block until a block list commits it. Staging is no write of the
// blob: no ETag changes, no condition applies, but a lease does [put-block].
func (a *Account) Stage(containerName, name, id string, data []byte, leaseID string) error {
	return a.write(containerName, name, Conditions{LeaseID: leaseID}, func(c *container, _ *blob, _ time.Time) error {
		b := c.blobs[name]
		if b == nil {
			b = &blob{}
			c.blobs[name] = b
		}
		for other := range b.staged {
			if len(other) != len(id) {
				return ErrInvalidBlobOrBlock
			}
		}
		if b.staged == nil {
			b.staged = map[string][]byte{}
		}
		b.staged[id] = data
		return nil
	})
}

// Commit makes the blob of the listed blocks, in that order. Staged blocks that
// the list does not name are thrown away.
func (a *Account) Commit(containerName, name string, list []BlockRef, h Headers, meta map[string]string, cond Conditions) (Blob, error) {
	var got Blob
	err := a.write(containerName, name, cond, func(c *container, old *blob, now time.Time) error {
		current := c.blobs[name]
		if current == nil {
			current = &blob{}
		}
		blocks := make([]block, 0, len(list))
		var data []byte
		for _, ref := range list {
			part, ok := current.block(ref)
			if !ok {
				return ErrInvalidBlockList
			}
			blocks = append(blocks, block{id: ref.ID, data: part})
			data = append(data, part...)
		}
		b := a.replace(c, name, old, now)
		b.headers, b.meta, b.data, b.blocks = h, maps.Clone(meta), data, blocks
		got = b.snapshot(now)
		return nil
	})
	return got, err
}

func (b *blob) block(ref BlockRef) ([]byte, bool) {
	if data, ok := b.staged[ref.ID]; ok && ref.Source != FromCommitted {
		return data, true
	}
	if ref.Source != FromUncommitted {
		for _, have := range b.blocks {
			if have.id == ref.ID {
				return have.data, true
			}
		}
	}
	return nil, false
}

// Blocks lists the committed blocks in their order and the staged ones by id.
// ErrBlobNotFound when the blob has neither.
func (a *Account) Blocks(containerName, name, leaseID string) (got Blob, committed, staged []Block, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(containerName)
	if err != nil {
		return Blob{}, nil, nil, err
	}
	b := c.blobs[name]
	if b == nil {
		return Blob{}, nil, nil, ErrBlobNotFound
	}
	now := time.Now()
	if err := b.lease.CheckRead(now, leaseID); err != nil {
		return Blob{}, nil, nil, err
	}
	for _, have := range b.blocks {
		committed = append(committed, Block{ID: have.id, Size: len(have.data)})
	}
	for id, data := range b.staged {
		staged = append(staged, Block{ID: id, Size: len(data)})
	}
	slices.SortFunc(staged, func(x, y Block) int { return strings.Compare(x.ID, y.ID) })
	return b.snapshot(now), committed, staged, nil
}
