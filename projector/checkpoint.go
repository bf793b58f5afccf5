package projector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// maxCheckpoint bounds what is read of a checkpoint, in bytes.
const maxCheckpoint = 1 << 20

// stream reads what the producer's checkpoint records of the stream that the read model is fed by.
func (c *Config) stream(ctx context.Context, o Options) (s build.Stream, err error) {
	name := cmp.Or(c.Stream, c.SourceDatabase+"."+c.SourceCollection)
	read := c.checkpointInBlob
	if c.CheckpointStore == "mongodb" {
		read = c.checkpointInMongo
	} else if c.CheckpointStore != "" && c.CheckpointStore != "blob" {
		return s, settings.Problems{fmt.Errorf("CHECKPOINT_STORE: this command reads the producer's checkpoint from blob or mongodb, not from %s. "+
			"Move it there with `producer token move --to mongodb`, and back behind the command", c.CheckpointStore)}
	}
	text, place, err := read(ctx, name+".json", o)
	switch {
	case errors.Is(err, errNoCheckpoint):
		return s, fmt.Errorf("stream %s has no checkpoint in %s: a read model is built beside a stream that a producer publishes. "+
			"Start the producer first, or correct STREAM_NAME and CHECKPOINT_STORE with its settings", name, place)
	case err != nil:
		return s, fmt.Errorf("read the checkpoint of stream %s: %w", name, err)
	}
	return parseCheckpoint(name, text)
}

// errNoCheckpoint reports a stream without a checkpoint in a store.
var errNoCheckpoint = errors.New("the checkpoint does not exist")

// checkpointInBlob reads an object of the producer's container, and returns what to call the
// container. Errors: errNoCheckpoint, and those of the settings and of the service.
func (c *Config) checkpointInBlob(ctx context.Context, name string, o Options) (text []byte, place string, err error) {
	if c.Blob == (azure.Blob{}) {
		return nil, "", settings.Problems{errors.New("BLOB_ACCOUNT_URL: is required for this command, with BLOB_CONTAINER and STREAM_NAME as the producer has " +
			"them, or CHECKPOINT_STORE=mongodb: a build reads from the producer's checkpoint which stream goes on behind it")}
	}
	client, err := c.Blob.Client(o.Credential, o.Blob)
	if err != nil {
		return nil, "", err
	}
	text = make([]byte, maxCheckpoint)
	n, err := client.DownloadBuffer(ctx, c.CheckpointContainer, name, text, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		err = errNoCheckpoint
	}
	return text[:n], "container " + c.CheckpointContainer, err
}

// checkpointInMongo is like checkpointInBlob for a checkpoint in MongoDB.
func (c *Config) checkpointInMongo(ctx context.Context, name string, o Options) (text []byte, place string, err error) {
	var checks settings.Checks
	checks.Add(settings.CheckMongoURI("CHECKPOINT_MONGODB_URI", c.CheckpointMongoURI),
		settings.MongoDatabase("CHECKPOINT_MONGODB_DATABASE", c.CheckpointMongoDatabase))
	if err := checks.Problems(); err != nil {
		return nil, "", err
	}
	clientOptions := options.Client().ApplyURI(c.CheckpointMongoURI).SetAppName("sluice-checkpoint")
	if o.Mongo != nil {
		o.Mongo(clientOptions)
	}
	client, err := mongo.Connect(clientOptions.SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()))
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = mongodb.Disconnect(context.WithoutCancel(ctx), client, closeTimeout) }()
	var object struct {
		Data []byte `bson:"data"`
	}
	err = client.Database(c.CheckpointMongoDatabase).Collection(mongodb.Checkpoints).FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&object)
	place = "the collection " + c.CheckpointMongoDatabase + "." + mongodb.Checkpoints
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, place, errNoCheckpoint
	}
	var beside struct { // there the lease is in the same object
		Record json.RawMessage `json:"record"`
	}
	if err == nil {
		err = json.Unmarshal(object.Data, &beside)
	}
	return beside.Record, place, err
}

// parseCheckpoint returns what a checkpoint records.
func parseCheckpoint(name string, text []byte) (s build.Stream, err error) {
	var record struct {
		Stream   string `json:"stream"`
		Position string `json:"position"`
		MovedTo  string `json:"movedTo"`
		Snapshot *struct {
			Done bool `json:"done"`
		} `json:"snapshot"`
		Reading struct {
			AggregateIDPath string `json:"aggregateIdPath"`
			VersionPath     string `json:"versionPath"`
			Pipeline        string `json:"pipeline"`
			Operations      string `json:"operations"`
			Collection      string `json:"collection"`
		} `json:"reading"`
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&record); err != nil {
		return s, fmt.Errorf("read the checkpoint of stream %s: %w", name, err)
	}
	if record.MovedTo != "" {
		return s, fmt.Errorf("the checkpoint of stream %s was moved to another store: set CHECKPOINT_STORE=%s with that store's settings", name, record.MovedTo)
	}
	r := record.Reading
	if record.Position == "" || r.AggregateIDPath == "" && r.Operations == "" {
		return s, fmt.Errorf("the checkpoint of stream %s has no position as yet, or an earlier version wrote it: let its producer lead for a moment", name)
	}
	return build.Stream{
		Name: record.Stream, Position: record.Position, Snapshot: record.Snapshot != nil && !record.Snapshot.Done,
		Collection: r.Collection, AggregatePath: r.AggregateIDPath, VersionPath: r.VersionPath, Pipeline: r.Pipeline, Operations: r.Operations,
	}, nil
}
