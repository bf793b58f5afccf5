package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Account is the whole state of one storage account. Its methods are safe for
// concurrent use. The zero value is not usable: call NewAccount.
type Account struct {
	mu         sync.Mutex
	containers map[string]*container // guarded by mu
	lastETag   uint64                // guarded by mu
}

type container struct {
	meta         map[string]string
	etag         string
	lastModified time.Time
	blobs        map[string]*blob
}

// NewAccount returns an account without containers.
func NewAccount() *Account {
	return &Account{containers: map[string]*container{}}
}

// ContainerInfo describes a container.
type ContainerInfo struct {
	Name         string
	ETag         string
	LastModified time.Time
	Meta         map[string]string
}

// stamp returns an ETag no write of this account ever had, and the time of
// writing in the whole seconds that HTTP dates have. mu is held.
func (a *Account) stamp(now time.Time) (etag string, lastModified time.Time) {
	// Microseconds resemble the service's own ETags; the counter distinguishes two writes of one
	// instant (virtual time stands still).
	a.lastETag = max(a.lastETag+1, uint64(now.UnixMicro()))
	return fmt.Sprintf(`"0x8%015X"`, a.lastETag), now.UTC().Truncate(time.Second)
}

func (a *Account) container(name string) (*container, error) {
	c, ok := a.containers[name]
	if !ok {
		return nil, ErrContainerNotFound
	}
	return c, nil
}

func (c *container) info(name string) ContainerInfo {
	return ContainerInfo{Name: name, ETag: c.etag, LastModified: c.lastModified, Meta: maps.Clone(c.meta)}
}

// CreateContainer makes an empty container, or fails with
// ErrContainerAlreadyExists.
func (a *Account) CreateContainer(name string, meta map[string]string) (ContainerInfo, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.containers[name]; ok {
		return ContainerInfo{}, ErrContainerAlreadyExists
	}
	c := &container{meta: maps.Clone(meta), blobs: map[string]*blob{}}
	c.etag, c.lastModified = a.stamp(time.Now())
	a.containers[name] = c
	return c.info(name), nil
}

// Container describes the container, or fails with ErrContainerNotFound.
func (a *Account) Container(name string) (ContainerInfo, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(name)
	if err != nil {
		return ContainerInfo{}, err
	}
	return c.info(name), nil
}

// SetContainerMetadata replaces the container's metadata.
func (a *Account) SetContainerMetadata(name string, meta map[string]string) (ContainerInfo, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(name)
	if err != nil {
		return ContainerInfo{}, err
	}
	c.meta = maps.Clone(meta)
	c.etag, c.lastModified = a.stamp(time.Now())
	return c.info(name), nil
}

// DeleteContainer removes the container and every blob in it, leased or not:
// only a lease on the container itself would forbid it [delete-container].
func (a *Account) DeleteContainer(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.container(name); err != nil {
		return err
	}
	delete(a.containers, name)
	return nil
}

// ListContainers returns up to limit containers whose names begin with prefix,
// from marker on in name order, and the marker of the next page ("" at the end).
func (a *Account) ListContainers(prefix, marker string, limit int) (page []ContainerInfo, next string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.containers)) {
		if !strings.HasPrefix(name, prefix) || name < marker {
			continue
		}
		if len(page) == limit {
			return page, name
		}
		page = append(page, a.containers[name].info(name))
	}
	return page, ""
}

// Entry is one line of a listing: a blob, or a prefix that many share.
type Entry struct {
	Name   string
	Prefix bool
	Blob   Blob // without its content; empty for a prefix
}

// ListBlobs returns up to limit entries of the container in name order. Names in which delimiter
// follows after prefix are folded into one prefix entry; an empty delimiter folds nothing. Only
// committed blobs are listed.
func (a *Account) ListBlobs(name, prefix, delimiter, marker string, limit int) (page []Entry, next string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.container(name)
	if err != nil {
		return nil, "", err
	}
	now := time.Now()
	for _, key := range slices.Sorted(maps.Keys(c.blobs)) {
		b := c.blobs[key]
		if !strings.HasPrefix(key, prefix) || !b.committed {
			continue
		}
		entry := Entry{Name: key}
		if delimiter != "" {
			if head, _, ok := strings.Cut(key[len(prefix):], delimiter); ok {
				entry = Entry{Name: prefix + head + delimiter, Prefix: true}
			}
		}
		if entry.Name < marker || len(page) > 0 && entry.Prefix && page[len(page)-1].Name == entry.Name {
			continue
		}
		if len(page) == limit {
			return page, entry.Name, nil
		}
		if !entry.Prefix {
			entry.Blob = b.snapshot(now)
			entry.Blob.Data = nil
		}
		page = append(page, entry)
	}
	return page, "", nil
}
