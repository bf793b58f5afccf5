package projector

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
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// A read model must not be the collection that it is made of: each write would be a change of the source, to be published and
// projected again, for ever. Names tell where SOURCE_DATABASE and SOURCE_COLLECTION are set. Where they are not, the namespace in
// an event tells, and if it is that of a collection of the read model, MongoDB is asked whether it is the same deployment's: only there
// does the change stream of that collection hold this very event.

// errOwnSource is a setting that makes a projection write into its own source.
func errOwnSource(database, collection string) error {
	return fmt.Errorf("READ_MODEL_DATABASE, MIRROR_COLLECTION: %s.%s is the watched collection itself: every write to it would be a change to project "+
		"again. Set another database or collection", database, collection)
}

// checkSource compares the read model's collections with the source by name, where the settings tell it.
func (c *Config) checkSource(chosen projection.Projection) error {
	collections, _ := projection.Collections(chosen)
	for _, own := range collections {
		if c.SourceDatabase == c.Database && c.SourceCollection == own.Name && (c.SourceMongoURI == "" || sameHosts(c.SourceMongoURI, c.MongoURI)) {
			return errOwnSource(c.Database, own.Name)
		}
	}
	return nil
}

func sameHosts(a, b string) bool {
	hosts := func(uri string) []string {
		all := options.Client().ApplyURI(uri).Hosts
		slices.Sort(all)
		return all
	}
	return slices.Equal(hosts(a), hosts(b))
}

// refuseOwnSource ends the projector before the first write where an event comes from one of the read model's collections.
func (s *service) refuseOwnSource(ctx context.Context, b *batch) error {
	if s.apart.Load() {
		return nil
	}
	for i := range b.changes {
		c := &b.changes[i]
		collection, suspect := s.ownNamespace(c)
		if !suspect {
			continue
		}
		same, err := s.isHere(ctx, collection, c)
		switch {
		case err != nil:
			return err
		case same:
			select {
			case s.refused <- settings.Problems{errOwnSource(s.cfg.Database, collection)}:
			default: // another session was faster
			}
			return sessions.ErrRelease
		}
		s.apart.Store(true)
		return nil
	}
	return nil
}

// ownNamespace says whether an event names a collection of the read model as where it comes from.
func (s *service) ownNamespace(c *envelope.Change) (collection string, suspect bool) {
	database, _ := c.Body.Lookup("ns", "db").StringValueOK()
	if database != s.cfg.Database {
		return "", false
	}
	collection, _ = c.Body.Lookup("ns", "coll").StringValueOK()
	return collection, slices.ContainsFunc(s.collections, func(own projection.Collection) bool { return own.Name == collection })
}

// sightings bounds the events of one moment that are looked at.
const sightings = 1000

// isHere says whether the deployment of the read model has this event in its own change stream. What it refuses to tell (its oplog does
// not reach back, or the user may not) is no: another event will tell. While it is away, it is asked again.
func (s *service) isHere(ctx context.Context, collection string, c *envelope.Change) (bool, error) {
	t, i, ok := c.Body.Lookup("clusterTime").TimestampOK()
	if !ok {
		return false, nil
	}
	at := bson.Timestamp{T: t, I: i}
	var backoff retry.Backoff
	for {
		found, err := s.look(ctx, collection, at, c.Key())
		if _, answered := errors.AsType[mongo.ServerError](err); err == nil || answered && ctx.Err() == nil && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err) {
			return found, nil
		}
		s.readModel.Report(err)
		if backoff.Wait(ctx) != nil {
			return false, sessions.ErrRelease
		}
	}
}

func (s *service) look(ctx context.Context, collection string, at bson.Timestamp, key bson.Raw) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ApplyTimeout)
	defer cancel()
	stream, err := s.mongo.Database(s.cfg.Database).Collection(collection).Watch(ctx, mongo.Pipeline{},
		options.ChangeStream().SetStartAtOperationTime(&at).SetMaxAwaitTime(100*time.Millisecond))
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = stream.Close(closing)
	}()
	for range sightings {
		if !stream.TryNext(ctx) {
			return false, stream.Err()
		}
		t, i, _ := stream.Current.Lookup("clusterTime").TimestampOK()
		if (bson.Timestamp{T: t, I: i}) != at {
			return false, nil
		}
		if its, ok := stream.Current.Lookup("documentKey").DocumentOK(); ok && string(its) == string(key) {
			return true, nil
		}
	}
	return false, nil
}
