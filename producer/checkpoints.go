package producer

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	mongodbstore "github.com/sluice-cdc/sluice/producer/store/mongodb"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// The stores that are built in, by CHECKPOINT_STORE.
const (
	storeBlob  = "blob"
	storeMongo = "mongodb"
)

// checkpointsInBlob reports whether the checkpoint store is Blob storage, also if a program leaves
// the setting empty.
func (c *Config) checkpointsInBlob() bool {
	return c.CheckpointStore == "" || c.CheckpointStore == storeBlob
}

// storeName returns the name of the checkpoint store in the log.
func (c *Config) storeName() string {
	switch {
	case c.checkpointsInBlob():
		return "Blob storage"
	case c.CheckpointStore == storeMongo:
		return "checkpoint store MongoDB"
	}
	return "checkpoint store " + c.CheckpointStore
}

// checkpoints opens the checkpoints of a stream's store.
type checkpoints struct {
	open  func(stream string) *checkpoint.Checkpoint
	other func(place string) (store.Store, error) // for copies
	check func(ctx context.Context) error         // nil: the store has no [store.Checker]
	// container is set for Blob storage alone.
	container *container.Client
}

func blobCheckpoints(client *azblob.Client, name string) checkpoints {
	c := client.ServiceClient().NewContainerClient(name)
	return checkpoints{
		container: c,
		open:      func(stream string) *checkpoint.Checkpoint { return checkpoint.NewBlob(c, stream) },
		other: func(place string) (store.Store, error) {
			return checkpoint.Container(client.ServiceClient().NewContainerClient(place)), nil
		},
	}
}

// storeKey identifies a store: streams with the same one share its connections.
type storeKey struct{ name, uri, database string }

// storeSet holds the open stores of a process.
type storeSet struct {
	mu   sync.Mutex
	open map[storeKey]store.Store // guarded by mu
}

// checkpoints returns those of a stream whose store is not Blob storage. Nothing is sent before the
// first use.
func (s *storeSet) checkpoints(c Config, opts Options) (checkpoints, error) {
	opened, err := s.get(storeKey{c.CheckpointStore, c.CheckpointMongoURI, c.CheckpointMongoDatabase}, opts)
	if err != nil {
		return checkpoints{}, err
	}
	var check func(context.Context) error
	if checker, ok := opened.(store.Checker); ok {
		check = checker.Check
	}
	return checkpoints{
		check: check,
		open:  func(stream string) *checkpoint.Checkpoint { return checkpoint.New(opened, stream) },
		other: func(place string) (store.Store, error) {
			if c.CheckpointStore != storeMongo {
				return nil, fmt.Errorf("the store %s has no other place for copies", c.CheckpointStore)
			}
			return s.get(storeKey{c.CheckpointStore, c.CheckpointMongoURI, place}, opts)
		},
	}, nil
}

func (s *storeSet) get(key storeKey, opts Options) (store.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened := s.open[key]; opened != nil {
		return opened, nil
	}
	var opened store.Store
	var err error
	switch {
	case key.name == storeMongo:
		opened, err = mongodbstore.Open(key.uri, key.database, opts.Mongo)
	case opts.Store != nil:
		if opened, err = opts.Store(key.name); err != nil {
			err = settings.Problems{err}
		}
	default:
		err = settings.Problems{fmt.Errorf("CHECKPOINT_STORE: this program has no store %q; it has blob and mongodb", key.name)}
	}
	if err != nil {
		return nil, fmt.Errorf("open the checkpoint store: %w", err)
	}
	if s.open == nil {
		s.open = map[storeKey]store.Store{}
	}
	s.open[key] = opened
	return opened, nil
}

// close closes the stores.
func (s *storeSet) close(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, opened := range s.open {
		switch opened := opened.(type) {
		case *mongodbstore.Store:
			_ = mongodb.Disconnect(ctx, opened.Client(), closeTimeout)
		case io.Closer:
			_ = opened.Close() // nothing is written any more
		}
	}
}

// checkpoint returns the checkpoint of a stream, in any store. Blob storage has a client of its
// own.
func (s *storeSet) checkpoint(c Config, opts Options) (*checkpoint.Checkpoint, error) {
	if !c.checkpointsInBlob() {
		all, err := s.checkpoints(c, opts)
		if err != nil {
			return nil, err
		}
		return all.open(c.Stream), nil
	}
	client, err := c.Blob.Client(opts.Credential, blobOptionsWithoutRetries(opts.Blob))
	if err != nil {
		return nil, err
	}
	return blobCheckpoints(client, c.CheckpointContainer).open(c.Stream), nil
}
