package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// ErrNoImages reports that the aggregate of updates and deletes can only come from an image of the
// document, and the server sends no images.
var ErrNoImages = errors.New("AGGREGATE_ID_PATH leads into the document, and an update or a delete has no document that is the same " +
	"at every reading")

// CheckImages returns [ErrNoImages] if an update or a delete would have no aggregate with these
// settings. It also returns nil if that is unknown, because the collection does not exist yet or
// the user may not read its options or its shard key; then the first such change reports it. Other
// errors are the server's.
func (c Config) CheckImages(ctx context.Context, collection *mongo.Collection) error {
	if !c.Mapping.needsImages() {
		return nil
	}
	kept, exists, err := KeepsImages(ctx, collection)
	switch {
	case mongodb.HasCode(err, mongodb.Unauthorized):
		return nil
	case err != nil:
		return err
	case !exists, kept && c.Mapping.imagesCoverAll():
		return nil
	}
	inKey, err := c.Mapping.inShardKey(ctx, collection)
	switch {
	case mongodb.HasCode(err, mongodb.Unauthorized):
		return nil
	case err != nil, inKey:
		return err
	}
	asked := "the collection keeps none"
	if kept {
		asked = "the settings do not request it (FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable does, for updates and deletes)"
	}
	return fmt.Errorf("%w: an image would be, and %s. Either %s. To keep images, run db.runCommand({collMod: %q, "+
		"changeStreamPreAndPostImages: {enabled: true}}) on it", ErrNoImages, asked, aggregateRemedies, collection.Name())
}

// AwaitImages calls [Config.CheckImages] until MongoDB responds or ctx ends. The only error is
// [ErrNoImages].
func (c Config) AwaitImages(ctx context.Context, collection *mongo.Collection) error {
	backoff := retry.Backoff{Initial: time.Second, Max: 30 * time.Second}
	for {
		asking := newResponseTimeout(0)
		err := asking.request(ctx, asking.limit, func(ctx context.Context) error { return c.CheckImages(ctx, collection) })
		if err == nil || errors.Is(err, ErrNoImages) {
			return err
		}
		if backoff.Wait(ctx) != nil {
			return nil
		}
	}
}

// KeepsImages reports whether a collection keeps pre- and post-images, and whether it exists.
func KeepsImages(ctx context.Context, collection *mongo.Collection) (kept, exists bool, err error) {
	found, err := collection.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: collection.Name()}})
	if err != nil {
		return false, false, err
	}
	for _, c := range found {
		enabled, _ := c.Options.Lookup("changeStreamPreAndPostImages", "enabled").BooleanOK()
		return enabled, true, nil
	}
	return false, false, nil
}

// inShardKey reports whether the collection is sharded by the aggregate id, which then is in every
// document's key. The error is Unauthorized if the user of a sharded cluster may not read its
// configuration.
func (m Mapping) inShardKey(ctx context.Context, collection *mongo.Collection) (bool, error) {
	client := collection.Database().Client()
	name := collection.Database().Name() + "." + collection.Name()
	sharding, err := client.Database("config").Collection("collections").FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	_, answered := errors.AsType[mongo.ServerError](err)
	switch {
	case mongodb.HasCode(err, mongodb.Unauthorized):
		if deployment, unknown := mongodb.Identify(ctx, client); unknown != nil || deployment.Sharded() {
			return false, cmp.Or(unknown, err)
		}
		return false, nil // a replica set has no sharded collections
	case answered, errors.Is(err, mongo.ErrNoDocuments):
		return false, nil // not sharded, or no such database
	case err != nil:
		return false, err
	}
	key, _ := sharding.Lookup("key").DocumentOK()
	return key != nil && key.Lookup(m.AggregatePath).Type != 0, nil
}
