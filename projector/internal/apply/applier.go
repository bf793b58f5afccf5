package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var (
	// errGuard means that the guard of a transaction did not match.
	errGuard = errors.New("guard does not match")
	// errRaced means that two transactions created a document at once.
	errRaced = errors.New("another transaction created the document at the same time")
	// errContended means that another projector keeps writing to the aggregate. That projector
	// makes progress, so a retry will succeed.
	errContended = errors.New("the guard keeps changing: another projector applies the same aggregate")
	// ErrNotParked means that the aggregate is not parked, or not by the expected record.
	ErrNotParked = errors.New("the aggregate is no longer parked for this reason")
)

// maxConflicts is how many times one aggregate's guard may change during an attempt before it
// fails.
const maxConflicts = 5

// maxDoubts is how many times in a row a write may be refused for a duplicate key that may be the
// guard's, although the guard allows the write.
const maxDoubts = 3

// Applier writes the effects of one projection. It is safe for concurrent use.
type Applier struct {
	projection     projection.Projection
	client         *mongo.Client
	database       *mongo.Database
	guards         guards
	conflicts      *conflictQueue // of transactions
	abandoned      *abandonedTxns
	calls          *projections
	ignoreVersions bool
	// firstVersion is the setting VERSION_FIRST.
	firstVersion int64
	through      func(stream, aggregate string) string
	suspects     *Watch
}

// Options are an applier's settings.
type Options struct {
	// IgnoreVersions is set if versions of the source do not grow by one, so that a missing one
	// cannot be recognised.
	IgnoreVersions bool
	// FirstVersion is the version that every aggregate begins with, so that a higher one cannot be
	// an aggregate's first; 0: any can.
	FirstVersion int64
	// AppName is the name with which all projectors connect to the read model, so that one can end
	// transactions that a dead one has left open. Ended is called with their number; it must not
	// block.
	AppName string
	Ended   func(n int)
	// Through, if set, returns the position up to which the read model was built for an aggregate
	// of a stream, also if nothing of the aggregate was there; empty if it was not.
	Through func(stream, aggregate string) string
	// Suspects knows the events whose projection ends the process; nil: none does.
	Suspects *Watch
}

// New returns an applier of a projection for a read-model database. Effects are committed with
// write concern majority regardless of the client's configuration, because messages are completed
// once they are.
func New(p projection.Projection, client *mongo.Client, database string, o Options) *Applier {
	readModel := client.Database(database, options.Database().
		SetWriteConcern(writeconcern.Majority()).
		// A guard that is read must not be rolled back later: messages are completed because of it.
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	return &Applier{
		projection: p, client: client, database: readModel, guards: guardsOf(p, readModel),
		conflicts: newConflictQueue(), calls: &projections{}, abandoned: &abandonedTxns{admin: client.Database("admin"), app: o.AppName, ended: o.Ended},
		ignoreVersions: o.IgnoreVersions, firstVersion: o.FirstVersion, through: o.Through, suspects: o.Suspects,
	}
}

// Apply writes the effects of the pending changes and sets results, which is as long as changes, to
// the outcome of each. A result that is [Poison] already belongs to a message that could not be
// read; its change holds what is known of it. session is the session in which the changes came, for
// the record of a parking.
//
// If the error is nil, each change is decided, waits for an earlier change of its aggregate, or is
// listed in the failures: changes that could not be applied for a reason of their own. A non-nil
// error concerns the whole batch, for example because the database is unreachable. Both may be
// retried: with the same arguments, Apply continues where it stopped. A decided change stays
// decided, whatever follows.
func (a *Applier) Apply(ctx context.Context, session string, t Attempt, changes []envelope.Change, results []Result) ([]Failure, error) {
	groups, failures, err := a.prepare(ctx, session, t, changes, results)
	var failed, unparked []Failure
	if err == nil {
		failed, err = a.write(ctx, t, groups, results)
	}
	if err == nil {
		unparked, err = a.parkPoisoned(ctx, session, t.Skip, changes, results)
	}
	failures = slices.Concat(failures, failed, unparked)
	if err != nil {
		err = fmt.Errorf("apply projection %s: %w", a.projection.Name(), err)
	}
	return failures, err
}

// write commits the groups' effects, has each group decide its changes, and records what they have
// decided.
func (a *Applier) write(ctx context.Context, t Attempt, groups []*group, results []Result) (failures []Failure, err error) {
	switch {
	case a.guards.inside:
		err = a.applyEmbedded(ctx, groups)
	case t.PerAggregate:
		err = a.applyPerAggregate(ctx, groups)
	default:
		err = a.applyTogether(ctx, groups, false)
	}
	for _, g := range groups { // also after an error: a committed change is decided
		record(results, g.decided)
		if g.failed != nil {
			failures = append(failures, *g.failed)
		}
	}
	return failures, err
}

// rebase reads the guards of the groups whose condition did not hold, and has the groups decide the
// consequences: an event that is already applied, a parked aggregate, a missing version. It reports
// whether it learned something about each of the groups.
func (a *Applier) rebase(ctx context.Context, collided []*group) (bool, error) {
	aggregates := make([]string, len(collided))
	for i, g := range collided {
		aggregates[i] = g.aggregate
	}
	found, err := a.guards.read(ctx, aggregates...)
	if err != nil {
		return false, err
	}
	progress := true
	for _, g := range collided {
		s := found[g.aggregate]
		if g.replay != nil && (s.Parked == nil || s.Parked.ID != g.replay.Parked.ID) {
			return false, ErrNotParked
		}
		seen, slot, shared := s.Of(g.stream), s.slot(g.stream), len(s.Streams) > 0
		applied := seen.Position
		if applied == "" && s.Parked == nil {
			applied = g.through // the build found nothing of the aggregate that is still there
		}
		learned := g.dropApplied(applied, seen) > 0 || slot != g.guardSlot || shared != g.shared || s.empty != g.stub
		g.guardSlot, g.shared, g.stub = slot, shared, s.empty
		switch {
		case len(g.events) == 0:
			learned = true
		case g.unclear(seen):
			g.refused(1, ReasonHistoryLost, errHistoryLost)
			learned = true
		case g.replay != nil:
			learned = learned || s.Parked.Later != g.replay.Parked.Later
			g.replay = &s
		case s.Parked != nil:
			counted, err := a.setAside(ctx, g, s.Parked)
			if err != nil {
				return false, err
			}
			learned = learned || counted
		}
		if g.stopAtGap(seen) {
			learned = true
		}
		switch {
		case learned || g.doubt == nil:
			g.doubts = 0
		default: // the guard allows the write, so another index refuses it; a second time may be chance
			if g.doubts++; g.doubts >= maxDoubts {
				g.refused(g.doubtful, ReasonRefused, g.doubt)
				learned = true
			}
		}
		g.doubt = nil
		progress = progress && learned
	}
	return progress, nil
}
