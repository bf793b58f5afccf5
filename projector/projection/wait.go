package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Awaited is the effect of an event that a caller of [Wait] waits for.
type Awaited struct {
	// Projection is the projection's name, or "NAME:2" for a version of it. If a view
	// <Collection>_current exists, a name without a version is the version that the view shows.
	Projection string
	// Aggregate is the aggregate's id as text (Event.Aggregate).
	Aggregate string
	// Version is the version of an insert; 0: any. Updates and deletes repeat the version of their
	// document, so they cannot be awaited by it.
	Version int64
	// Position is the position of an event in its stream (Event.Position); empty: any. One of
	// Version and Position is required, and with both, both must be reached.
	Position string
	// Stream is the stream of the event; it is needed only if several feed the projection.
	Stream string
	// Collection is the collection that the caller reads, without the suffix of a version or of a
	// view; empty: it has the projection's name.
	Collection string
}

// Effect is what [Wait] found.
type Effect struct {
	// Collection is the collection that holds the effect: [Awaited.Collection] in the version that
	// was awaited.
	Collection string
	// OperationTime is a time at which the effect was visible. A read with it as its
	// afterClusterTime sees the effect on any member; a read on the primary sees it without.
	OperationTime bson.Timestamp
	// Version and Position are those of the last event applied.
	Version  int64
	Position string
}

// ErrInvalid is an [Awaited] that cannot be waited for.
var ErrInvalid = errors.New("cannot wait")

// ParkedError is an aggregate that is parked before the event: its effect does not come before an
// operator has replayed or repaired the aggregate.
type ParkedError struct {
	Aggregate, Reason, Description string
}

// Error implements the interface error.
func (e *ParkedError) Error() string {
	return fmt.Sprintf("aggregate %s is parked (%s): %s", e.Aggregate, e.Reason, e.Description)
}

// NotYetError is a wait that ended before the effect came. It unwraps to the cause of the context's
// end.
type NotYetError struct {
	Awaited Awaited
	Last    Effect // how far the aggregate is applied
	cause   error
}

// Error implements the interface error.
func (e *NotYetError) Error() string {
	var wanted []string
	if e.Awaited.Version > 0 {
		wanted = append(wanted, "version "+strconv.FormatInt(e.Awaited.Version, 10))
	}
	if e.Awaited.Position != "" {
		wanted = append(wanted, "position "+e.Awaited.Position)
	}
	last := "nothing of it is applied"
	if e.Last.Position != "" {
		last = fmt.Sprintf("it is applied up to version %d, position %s", e.Last.Version, e.Last.Position)
	}
	return fmt.Sprintf("%s of aggregate %s has no effect in projection %s yet: %s. The event may be on its way; the producer may leave it out "+
		"(OPERATIONS, PIPELINE); it may write nothing in this projection; or it is not an insert, and only inserts have a version: %s",
		strings.Join(wanted, " and "), e.Awaited.Aggregate, e.Awaited.Projection, last, e.cause)
}

// Unwrap returns the cause of the context's end.
func (e *NotYetError) Unwrap() error { return e.cause }

// Wait waits until the read model in a database holds the effect of an event, so that a query sees
// what a command has just written: the command returns the aggregate's new version, and the query
// waits for that version. ctx bounds the wait.
//
// Callers of a process that wait for the same projection share one change stream, which is open
// before the aggregate's guard is read and for half a minute after the last caller. The read model
// is not polled. The caller's user needs the rights find, changeStream and listCollections.
//
// Errors, with the effect of the last event applied: [*ParkedError] at once if the aggregate is
// parked before the event; [*NotYetError] once ctx has ended; [ErrInvalid]; and those of the
// database, such as of a server without change streams.
func Wait(ctx context.Context, database *mongo.Database, a Awaited) (Effect, error) {
	if a.Aggregate == "" || a.Version <= 0 && a.Position == "" {
		return Effect{}, fmt.Errorf("%w: Aggregate and one of Version and Position are required", ErrInvalid)
	}
	name, version, err := ParseVersion(a.Projection)
	if err != nil || name == "" {
		return Effect{}, fmt.Errorf("%w: Projection %q is not the name of a projection or of a version of it", ErrInvalid, a.Projection)
	}
	a.Collection = cmp.Or(a.Collection, name)
	named := strings.Contains(a.Projection, ":")
	in, err := find(ctx, database, a.Collection, name, version, named)
	for err == nil {
		var effect Effect
		effect, err = in.wait(ctx, database, a)
		if err != nil || !in.shown {
			return effect, err
		}
		var now guardsOf
		now, err = find(ctx, database, a.Collection, name, version, named)
		if err == nil && now == in {
			return effect, nil // the view shows the same version as before
		}
		in = now
	}
	if ctx.Err() != nil {
		err = &NotYetError{Awaited: a, cause: context.Cause(ctx)}
	}
	return Effect{}, err
}

// guardsOf is where one version of a projection has its guards.
type guardsOf struct {
	guards, prefix string // the collection, and the path to the guard in a document
	collection     string // that the caller reads
	shown          bool   // a view has chosen the version
}

// find returns where the guards of a projection are. If the caller did not name a version, that of
// the view counts, if there is one.
func find(ctx context.Context, database *mongo.Database, collection, name string, version int, named bool) (in guardsOf, err error) {
	suffix := ""
	if version > 1 {
		suffix = "_v" + strconv.Itoa(version)
	}
	if !named {
		views, err := database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: collection + "_current"}, {Key: "type", Value: "view"}})
		if err != nil {
			return in, fmt.Errorf("look up the view %s_current: %w", collection, err)
		}
		if len(views) == 1 {
			on, _ := views[0].Options.Lookup("viewOn").StringValueOK()
			suffix, in.shown = strings.TrimPrefix(on, collection), true
			if on != collection && !versionName.MatchString(suffix) {
				return in, fmt.Errorf("%w: the view %s_current shows %s, which is not a version of %s", ErrInvalid, collection, on, collection)
			}
		}
	}
	recorded := name + suffix + "_positions"
	in.collection = collection + suffix
	found, err := database.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{recorded, in.collection}}}}})
	if err != nil {
		return in, fmt.Errorf("look up the collections of projection %s: %w", name, err)
	}
	in.guards, in.prefix = in.collection, GuardField+"."
	if slices.Contains(found, recorded) {
		in.guards, in.prefix = recorded, ""
	}
	if len(found) == 0 {
		return in, fmt.Errorf("%w: database %s has neither %s nor %s: set Collection to the collection that the projection writes to, and start the projector",
			ErrInvalid, database.Name(), recorded, in.collection)
	}
	return in, nil
}

// wait waits for the effect in one version.
func (in guardsOf) wait(ctx context.Context, database *mongo.Database, a Awaited) (Effect, error) {
	last, err := guardsAt{database.Client(), database.Name(), in.guards, in.prefix}.wait(ctx, a)
	effect := Effect{Collection: in.collection, OperationTime: last.at, Version: last.version, Position: last.position}
	if errors.Is(err, errNotYet) {
		err = &NotYetError{Awaited: a, Last: effect, cause: context.Cause(ctx)}
	}
	return effect, err
}
