package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// A read model must not be the collection that it is made from: each write would be a change of the
// source, to be published and projected again, endlessly. If SOURCE_DATABASE and SOURCE_COLLECTION
// are set, the names decide. If not, and the namespace in an event is that of a collection of the
// read model, MongoDB is asked whether the event is of the same deployment: only there does the
// change stream of that collection hold this very event. As long as MongoDB refuses to answer,
// because its oplog begins later or the user may not, each batch asks again with its newest event:
// what a projector writes into its own source soon comes back to it.

// OwnSource returns the error of settings that make a projection write into its own source.
func OwnSource(database, collection string) error {
	return fmt.Errorf("READ_MODEL_DATABASE, MIRROR_COLLECTION: %s.%s is the watched collection itself: every write to it would be a change to project "+
		"again. Set another database or collection", database, collection)
}

// refuse ends the projector if an event shows that its settings are wrong.
func (p *Pipeline) refuse(ctx context.Context, b *batch) error {
	if err := p.refuseOwnSource(ctx, b); err != nil {
		return err
	}
	return p.refuseLookedUp(b)
}

// refuseOwnSource ends the projector before the first write if an event comes from one of the read
// model's collections.
func (p *Pipeline) refuseOwnSource(ctx context.Context, b *batch) error {
	if p.notOwnSource.Load() {
		return nil
	}
	for i := len(b.changes) - 1; i >= 0; i-- {
		c := &b.changes[i]
		collection, suspect := p.ownNamespace(c)
		if !suspect {
			continue
		}
		whose, err := p.sourceOf(ctx, collection, c)
		switch {
		case err != nil:
			return err
		case whose == itsOwn:
			p.Refuse(settings.Problems{OwnSource(p.opts.Database.Name(), collection)})
			return sessions.ErrRelease
		case whose == anothers:
			p.notOwnSource.Store(true)
		}
		return nil
	}
	return nil
}

// ownNamespace reports whether an event comes from a collection with the name of one of the read
// model's.
func (p *Pipeline) ownNamespace(c *envelope.Change) (collection string, suspect bool) {
	database, _ := c.Body.Lookup("ns", "db").StringValueOK()
	if database != p.opts.Database.Name() {
		return "", false
	}
	collection, _ = c.Body.Lookup("ns", "coll").StringValueOK()
	return collection, slices.ContainsFunc(p.collections, func(own projection.Collection) bool { return own.Name == collection })
}

// sightings bounds how many events of one moment are read.
const sightings = 1000

// source is whether an event comes from the deployment of the read model.
type source uint8

// The answers to whether an event comes from the deployment of the read model.
const (
	unknown source = iota // MongoDB refused to answer
	itsOwn
	anothers
)

// sourceOf reports whether the deployment of the read model has this event in its own change
// stream. While the deployment is away, it is asked again.
func (p *Pipeline) sourceOf(ctx context.Context, collection string, c *envelope.Change) (source, error) {
	t, i, ok := c.Body.Lookup("clusterTime").TimestampOK()
	if !ok {
		return unknown, nil
	}
	at := bson.Timestamp{T: t, I: i}
	var backoff retry.Backoff
	for {
		whose, err := p.look(ctx, collection, at, c.Key())
		if _, answered := errors.AsType[mongo.ServerError](err); err == nil || answered && ctx.Err() == nil && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err) {
			return whose, nil
		}
		p.readModel.Report(err)
		if backoff.Wait(ctx) != nil {
			return unknown, sessions.ErrRelease
		}
	}
}

func (p *Pipeline) look(ctx context.Context, collection string, at bson.Timestamp, key bson.Raw) (source, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.ApplyTimeout)
	defer cancel()
	stream, err := p.opts.Database.Collection(collection).Watch(ctx, mongo.Pipeline{},
		options.ChangeStream().SetStartAtOperationTime(&at).SetMaxAwaitTime(100*time.Millisecond))
	if err != nil {
		return unknown, err
	}
	defer mongodb.CloseCursor(ctx, stream)
	for range sightings {
		if !mongodb.TryFirst(ctx, stream) {
			if err := stream.Err(); err != nil {
				return unknown, err
			}
			return anothers, nil
		}
		t, i, _ := stream.Current.Lookup("clusterTime").TimestampOK()
		if (bson.Timestamp{T: t, I: i}) != at {
			return anothers, nil
		}
		if its, ok := stream.Current.Lookup("documentKey").DocumentOK(); ok && string(its) == string(key) {
			return itsOwn, nil
		}
	}
	return unknown, nil
}

// errLookedUp returns the error of a producer without the post-images that a projection needs.
func errLookedUp(name string, c *envelope.Change) error {
	database, _ := c.Body.Lookup("ns", "db").StringValueOK()
	collection, _ := c.Body.Lookup("ns", "coll").StringValueOK()
	return fmt.Errorf("PROJECTION: %s needs post-images, and the document of an update (message %s of stream %s) was looked up later. Run "+
		"db.getSiblingDB(%q).runCommand({collMod: %q, changeStreamPreAndPostImages: {enabled: true}}) in the source, and set the producer's "+
		"FULL_DOCUMENT=required; updates published before have no post-image: begin with a new subscription",
		name, c.MessageID, c.Stream, database, collection)
}

// refuseLookedUp ends the projector before the first effect of an update with a document that
// was read later, if the projection needs the update's own.
func (p *Pipeline) refuseLookedUp(b *batch) error {
	needs, ok := p.opts.Projection.(projection.PostImages)
	if !ok || !needs.NeedsPostImages() {
		return nil
	}
	for i := range b.changes {
		if !(projection.Event{Change: b.changes[i]}).LookedUp() {
			continue
		}
		p.Refuse(settings.Problems{errLookedUp(p.opts.Projection.Name(), &b.changes[i])})
		return sessions.ErrRelease
	}
	return nil
}
