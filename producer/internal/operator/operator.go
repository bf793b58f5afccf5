// Package operator is what people do to a stream by hand: see its state, move its checkpoint, break its lease, and find out what
// keeps it from running.
//
// Guaranteed: the checkpoint is only ever changed the way a new leader changes it: under the lease, over the very record
// that was read, with the next epoch. So a leader that was overruled is fenced off, and the record that was replaced is kept as a
// copy. A command changes only what it names.
//
// Not guaranteed: that nothing is published during a forced change. The overruled leader notices at its next heartbeat, at the
// latest after FENCE_AFTER; what it sends until then carries the old epoch.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// ErrRefused is a change that would do harm; the error says which, and how to do it all the same where that is possible.
var ErrRefused = errors.New("refused")

// Stream is one stream and the services it lives in.
type Stream struct {
	Name      string
	Container *container.Client
	// OtherContainer is another container of the same account, by name.
	OtherContainer func(name string) *container.Client
	// Claims is where the bodies of large events go; nil: nowhere.
	Claims     *container.Client
	Collection *mongo.Collection
	// Dial makes a Service Bus client; only the doctor calls it.
	Dial func() (*azservicebus.Client, error)
	// Administer makes a client of Service Bus's administration, or gives [azure.ErrNotAdministered]; only the doctor calls it.
	Administer func() (*admin.Client, error)
	// Entity is the topic, or the queue if Queue.
	Entity string
	Queue  bool
	// LocalAuth: Service Bus is reached by a connection string, not by an identity.
	LocalAuth bool
	// Operator writes the record when it is changed by hand: a leader's name, and nobody's instance.
	Operator string
	// LeaseDuration is as the producers'.
	LeaseDuration time.Duration
	// Times are the producers'; only the doctor looks at them.
	Times leader.Times
	// FullDocument and BeforeChange are the change stream's options of those names; empty leaves them out.
	FullDocument, BeforeChange options.FullDocument
	// Pipeline is the change stream's, behind its options.
	Pipeline mongo.Pipeline
	// Settings is the hash of what is read, as a leader would put it into the record where positions are counted.
	Settings string
	// MappingFingerprint and SessionKey are what the present settings would put into the record.
	Fingerprint checkpoint.MappingFingerprint
	SessionKey  envelope.SessionKey
	// Cluster returns the identity of the deployment, empty if it cannot be read; nil: it is not asked for.
	Cluster func(ctx context.Context) string
	// CheckImages says whether updates and deletes can tell their aggregate.
	CheckImages func(ctx context.Context) error
	// SampleTypes looks at the types of versions and aggregate ids in the collection; only the doctor calls it.
	SampleTypes func(ctx context.Context) (changes.Sample, error)
	// Unstable: what the pipeline passes may differ from one reading to the next.
	Unstable bool
	// Out is where commands print, as JSON if JSON.
	Out  io.Writer
	JSON bool
	// Progress shows how far a command is; nil: nobody watches.
	Progress *terminal.Progress
	// Timeout bounds one request; zero means ten seconds.
	Timeout time.Duration
}

func (s *Stream) checkpoint() *checkpoint.Blob { return checkpoint.NewBlob(s.Container, s.Name) }

func (s *Stream) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	return context.WithTimeout(ctx, timeout)
}

// read reads the record; the error says what to do about one that is missing.
func (s *Stream) read(ctx context.Context) (checkpoint.Snapshot, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	snapshot, err := s.checkpoint().Read(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		if gone := s.checkpoint().Missing(ctx); errors.Is(gone, checkpoint.ErrGone) {
			return snapshot, gone
		}
		return snapshot, fmt.Errorf("%w: no producer has led stream %q yet; start one (START_FROM and START_AT say where a "+
			"new stream begins), or check STREAM_NAME and BLOB_CONTAINER", err, s.Name)
	case errors.Is(err, checkpoint.ErrUnreadable):
		return snapshot, fmt.Errorf("%w; look at the blob %s.json, and put back a copy that can be read", err, s.Name)
	}
	return snapshot, err
}

// clusterTime is the deployment's cluster time, zero where it tells none.
func (s *Stream) clusterTime(ctx context.Context) (bson.Timestamp, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	return mongodb.ClusterTime(ctx, s.Collection.Database())
}

func formatTime(t bson.Timestamp) string {
	if t.IsZero() {
		return "unknown"
	}
	return time.Unix(int64(t.T), 0).UTC().Format(time.RFC3339)
}
