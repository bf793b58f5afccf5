package state

import (
	"maps"
	"time"
)

// Headers are the HTTP properties that a blob keeps and gives back.
type Headers struct {
	ContentType        string
	ContentEncoding    string
	ContentLanguage    string
	ContentDisposition string
	CacheControl       string
	ContentMD5         []byte
}

// Blob is a copy of a block blob as it was at one instant.
type Blob struct {
	Headers
	Data            []byte // shared and immutable: never write to it
	Size            int
	Meta            map[string]string
	ETag            string
	LastModified    time.Time
	Created         time.Time
	LeaseState      LeaseState
	LeaseLocked     bool
	LeaseInfinite   bool
	CommittedBlocks int
}

// Block is one block of a blob.
type Block struct {
	ID   string // base64, as the client sent it
	Size int
}

type blob struct {
	headers      Headers
	data         []byte // replaced, never changed in place
	meta         map[string]string
	etag         string
	lastModified time.Time
	created      time.Time
	lease        Lease
	committed    bool // false while only uncommitted blocks exist
	blocks       []block
	staged       map[string][]byte
}

type block struct {
	id   string
	data []byte
}

func (b *blob) snapshot(now time.Time) Blob {
	state := b.lease.State(now)
	return Blob{
		Headers: b.headers, Data: b.data, Size: len(b.data), Meta: maps.Clone(b.meta), ETag: b.etag,
		LastModified: b.lastModified, Created: b.created, LeaseState: state,
		LeaseLocked: b.lease.Locked(now), LeaseInfinite: state == Leased && b.lease.Infinite(),
		CommittedBlocks: len(b.blocks),
	}
}

// find returns the committed blob, or nil without one. mu is held.
func (c *container) find(name string) *blob {
	if b := c.blobs[name]; b != nil && b.committed {
		return b
	}
	return nil
}

// read runs f on a committed blob after the conditions for a read. The lease
// comes after the conditions, as in every operation here.
func (a *Account) read(containerName, name string, cond Conditions, f func(*blob, time.Time) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(containerName)
	if err != nil {
		return err
	}
	b := c.find(name)
	if b == nil {
		return ErrBlobNotFound
	}
	now := time.Now()
	if err := cond.checkRead(b); err != nil {
		return err
	}
	if err := b.lease.CheckRead(now, cond.LeaseID); err != nil {
		return err
	}
	return f(b, now)
}

// write runs f on the container and the committed blob (nil without one)
// after the conditions for a write.
func (a *Account) write(containerName, name string, cond Conditions, f func(*container, *blob, time.Time) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(containerName)
	if err != nil {
		return err
	}
	b := c.find(name)
	if b != nil && cond.IfNoneMatch == "*" {
		return ErrBlobAlreadyExists // [put-blob]: not 412, as everywhere else
	}
	return guarded(c, b, cond, f)
}

// guarded runs f once the conditions and the lease of b, which may be nil,
// allow a write. mu is held.
func guarded(c *container, b *blob, cond Conditions, f func(*container, *blob, time.Time) error) error {
	if err := cond.checkWrite(b); err != nil {
		return err
	}
	now := time.Now()
	if b != nil { // a lease id does not keep a blob from being created
		if err := b.lease.CheckWrite(now, cond.LeaseID); err != nil {
			return err
		}
	}
	return f(c, b, now)
}

// touch gives a written blob its new ETag and lets go of a dead lease. mu is held.
func (a *Account) touch(b *blob, now time.Time) {
	b.etag, b.lastModified = a.stamp(now)
	b.lease.Written(now)
}

// Get returns the blob with its content.
func (a *Account) Get(containerName, name string, cond Conditions) (Blob, error) {
	var got Blob
	err := a.read(containerName, name, cond, func(b *blob, now time.Time) error {
		got = b.snapshot(now)
		return nil
	})
	return got, err
}

// Put replaces the blob's content, properties and metadata, or creates it. The
// lease of a blob that exists stays as it is [put-blob].
func (a *Account) Put(containerName, name string, data []byte, h Headers, meta map[string]string, cond Conditions) (Blob, error) {
	var got Blob
	err := a.write(containerName, name, cond, func(c *container, old *blob, now time.Time) error {
		b := a.replace(c, name, old, now)
		b.headers, b.meta, b.data = h, maps.Clone(meta), data
		got = b.snapshot(now)
		return nil
	})
	return got, err
}

// replace makes the named blob new and committed, keeping the lease and the
// time of creation of the old one, which is nil when there was none. mu is held.
func (a *Account) replace(c *container, name string, old *blob, now time.Time) *blob {
	b := &blob{committed: true, created: now}
	if old != nil {
		b.created, b.lease = old.created, old.lease
	}
	a.touch(b, now)
	c.blobs[name] = b
	return b
}

// SetMetadata replaces the blob's metadata.
func (a *Account) SetMetadata(containerName, name string, meta map[string]string, cond Conditions) (Blob, error) {
	return a.modify(containerName, name, cond, func(b *blob) { b.meta = maps.Clone(meta) })
}

// SetHeaders replaces all of the blob's HTTP properties: one that is not given
// is cleared [set-blob-properties].
func (a *Account) SetHeaders(containerName, name string, h Headers, cond Conditions) (Blob, error) {
	return a.modify(containerName, name, cond, func(b *blob) { b.headers = h })
}

func (a *Account) modify(containerName, name string, cond Conditions, f func(*blob)) (Blob, error) {
	var got Blob
	err := a.existing(containerName, name, cond, func(_ *container, b *blob, now time.Time) error {
		f(b)
		a.touch(b, now)
		got = b.snapshot(now)
		return nil
	})
	return got, err
}

// existing is like write for an operation that needs the blob: a missing blob is reported before
// any condition is checked.
func (a *Account) existing(containerName, name string, cond Conditions, f func(*container, *blob, time.Time) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(containerName)
	if err != nil {
		return err
	}
	b := c.find(name)
	if b == nil {
		return ErrBlobNotFound
	}
	return guarded(c, b, cond, f)
}

// Delete removes the blob, its uncommitted blocks and its lease.
func (a *Account) Delete(containerName, name string, cond Conditions) error {
	return a.existing(containerName, name, cond, func(c *container, _ *blob, _ time.Time) error {
		delete(c.blobs, name)
		return nil
	})
}

// WithLease runs one lease operation on a committed blob. Conditions apply as for a write, except
// for the lease id. A lease operation changes neither ETag nor time of modification [lease].
func (a *Account) WithLease(containerName, name string, cond Conditions, f func(*Lease, time.Time) error) (Blob, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(containerName)
	if err != nil {
		return Blob{}, err
	}
	b := c.find(name)
	if b == nil {
		return Blob{}, ErrBlobNotFound
	}
	if err := cond.checkWrite(b); err != nil {
		return Blob{}, err
	}
	now := time.Now()
	if err := f(&b.lease, now); err != nil {
		return Blob{}, err
	}
	return b.snapshot(now), nil
}
