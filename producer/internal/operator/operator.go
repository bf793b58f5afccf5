// Package operator has the operator's commands for a stream: show its state, move its checkpoint,
// break its lease, and find out what keeps it from running.
//
// Guaranteed: the checkpoint is only changed the way a new leader changes it: under the lease, over
// the record that was read, with the next epoch. So an overruled leader is fenced off, and the
// replaced record is kept as a copy. A command changes only what it names.
//
// Not guaranteed: that nothing is published during a forced change. The overruled leader notices at
// its next heartbeat, at the latest after FENCE_AFTER; what it sends until then carries the old
// epoch.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// ErrRefused reports a change that would do harm. The error describes the harm and, if possible,
// how to proceed anyway.
var ErrRefused = errors.New("refused")

// Stream is one stream and the services that it uses.
type Stream struct {
	Name string
	// Open returns the checkpoint of a stream, by the stream's name.
	Open func(stream string) *checkpoint.Checkpoint
	// Container holds the checkpoint if it is in Blob storage; else it is nil.
	Container *container.Client
	// OtherStore returns another place for copies of the checkpoint: a container of the same
	// account, or a database of the same deployment.
	OtherStore func(name string) (store.Store, error)
	// InStore returns the checkpoint of the stream in another store, with that store's settings.
	InStore    func(store string) (*checkpoint.Checkpoint, error)
	Collection *mongo.Collection
	// Entity is the destination of the stream.
	Entity Entity
	// Checks is used by the doctor only.
	Checks Checks
	// Operator is written into the record as the leader's name when a command changes it. No
	// instance has this name.
	Operator string
	// LeaseDuration is that of the producers.
	LeaseDuration time.Duration
	// FullDocument and BeforeChange are the change stream's options of those names; empty leaves
	// them out.
	FullDocument, BeforeChange options.FullDocument
	// Pipeline is the change stream's pipeline.
	Pipeline mongo.Pipeline
	// Settings is the hash of the reading settings, as a leader records it if positions are
	// counted.
	Settings string
	// Fingerprint and SessionKey are what a leader would record with the present settings.
	Fingerprint checkpoint.MappingFingerprint
	SessionKey  envelope.SessionKey
	// PackEvents is how many events of a session a message may hold; 0: packs are off.
	PackEvents int
	// AggregatePath is AGGREGATE_ID_PATH.
	AggregatePath string
	// CheckSnapshot returns why the settings permit no snapshot, of single aggregates or of all
	// documents.
	CheckSnapshot func(single bool) error
	// Cluster returns the identity of the deployment, empty if it cannot be read; nil: unknown.
	Cluster func(ctx context.Context) string
	// Out is where commands print; JSON selects the format.
	Out  io.Writer
	JSON bool
	// Progress shows how far a command is; nil shows nothing.
	Progress *terminal.Progress
}

// Checks are the parts of a stream that only the doctor checks.
type Checks struct {
	// Store examines the service behind the checkpoint store; nil: the store has no such check.
	Store func(ctx context.Context) error
	// Claims is the container for the bodies of large events and refused messages; nil: there is
	// none.
	Claims *container.Client
	// Dial returns a Service Bus client.
	Dial func() (*azservicebus.Client, error)
	// LocalAuth reports whether Service Bus is accessed with a connection string instead of an
	// identity.
	LocalAuth bool
	// Times are those of the producers.
	Times leader.Times
	// Images checks whether the aggregate of updates and deletes can be determined.
	Images func(ctx context.Context) error
	// Types examines the types of versions and aggregate ids in the collection.
	Types func(ctx context.Context) (changes.Sample, error)
	// UnstableFilter reports whether the pipeline may pass other events at the next reading.
	UnstableFilter bool
}

func (s *Stream) checkpoint() *checkpoint.Checkpoint { return s.Open(s.Name) }

// withTimeout bounds one request.
func (s *Stream) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 10*time.Second)
}

// read reads the record. The error for a missing record includes what to do.
func (s *Stream) read(ctx context.Context) (checkpoint.Snapshot, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	snapshot, err := s.observe(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		if gone := s.checkpoint().Missing(ctx); errors.Is(gone, checkpoint.ErrGone) {
			return snapshot, gone
		}
		return snapshot, fmt.Errorf("%w: no producer has led stream %q yet; start one (START_FROM and START_AT define where a "+
			"new stream begins), or check STREAM_NAME and the settings of the checkpoint store", err, s.Name)
	case errors.Is(err, checkpoint.ErrMoved):
		return snapshot, err
	case errors.Is(err, checkpoint.ErrUnreadable):
		return snapshot, fmt.Errorf("%w; examine %s.json in the checkpoint store, and restore a copy that can be read", err, s.Name)
	}
	return snapshot, err
}

// silent is the state of a lease whose holder has not written for TAKEOVER_AFTER.
const silent = "silent"

// observe reads the record. If leases do not expire, it also watches a leased record until its
// holder writes: after TAKEOVER_AFTER without a write the lease counts as free and silent.
func (s *Stream) observe(ctx context.Context) (checkpoint.Snapshot, error) {
	c := s.checkpoint()
	first, err := c.Read(ctx)
	if err != nil || !first.Leased || c.Expires() {
		return first, err
	}
	for began := time.Now(); ; {
		if err := retry.Sleep(ctx, watchInterval); err != nil {
			return first, err
		}
		now, err := c.Read(ctx)
		if err != nil || !now.Leased || now.Tag != first.Tag {
			return now, err
		}
		if time.Since(began) >= s.Checks.Times.Takeover {
			now.Leased, now.LeaseState = false, silent
			return now, nil
		}
	}
}

// watchInterval is the time between two reads of a record that is watched.
const watchInterval = 100 * time.Millisecond

// clusterTime returns the deployment's cluster time, or zero if it reports none.
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

// Result describes what a command changed, as --json prints it.
type Result struct {
	Stream string `json:"stream"`
	// Changed is false if there was nothing to do.
	Changed bool `json:"changed"`
	// Epoch is the record's present epoch.
	Epoch int64 `json:"epoch"`
	// Generation is the record's generation, if the checkpoint was moved.
	Generation int64 `json:"generation,omitempty"`
	// From and To are the cluster times between which the checkpoint was moved.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// OldRecord is the blob with the previous record; Copy is the blob of a copy, with its
	// container.
	OldRecord string `json:"old_record,omitempty"`
	Copy      string `json:"copy,omitempty"`
	// BrokeLeaseOf is the leader whose lease was broken.
	BrokeLeaseOf string `json:"broke_lease_of,omitempty"`
	// Message is the text for the operator.
	Message string `json:"message"`
}

// print prints the result of a command, as JSON or text.
func (s *Stream) print(d Result, message string, args ...any) error {
	d.Stream, d.Message = s.Name, strings.TrimSpace(fmt.Sprintf(message, args...))
	return commandline.Show(s.Out, s.JSON, d)
}

// Print writes the result as text.
func (d Result) Print(out io.Writer) { fmt.Fprintln(out, d.Message) }
