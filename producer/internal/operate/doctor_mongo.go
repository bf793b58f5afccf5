package operate

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

const (
	codeChangeStreamFatal       = 280
	codeChangeStreamHistoryLost = 286
	codeNotAReplicaSet          = 40573
)

func (s *Stream) examineMongo(ctx context.Context, e *examination) {
	if !s.examineServer(ctx, e) {
		return
	}
	token, opened := s.examineStream(ctx, e)
	if !opened {
		return
	}
	switch {
	case len(token) == 0:
		e.ok("tokens", "none before the first event on this deployment: whether they can be sorted shows then")
	case envelope.Sortable(envelope.TokenText(token)):
		e.ok("tokens", "sortable")
	default:
		e.problem("tokens", "use a deployment whose resume tokens are hex, such as MongoDB or Atlas; this one is not supported yet",
			"its resume tokens cannot be sorted, which positions rely on")
	}
	s.examineHistory(ctx, e)
	s.examineImages(ctx, e)
}

func (s *Stream) examineServer(ctx context.Context, e *examination) bool {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	err := s.Collection.Database().Client().Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	// The driver's type, not a code: self-hosted servers say 18, Atlas says 8000.
	_, refused := errors.AsType[*auth.Error](err)
	switch {
	case refused:
		e.problem("mongodb", "check user, password and authSource in MONGODB_URI", "it does not accept the user")
	case err != nil:
		e.problem("mongodb", "check the hosts in MONGODB_URI, the network, and the deployment's list of allowed addresses",
			"it does not answer: %v", err)
	case hello.SetName == "" && hello.Msg != "isdbgrid":
		e.problem("mongodb", "start it with --replSet and run rs.initiate() once; one member is enough",
			"it is a standalone server, which has no change streams")
	case hello.Msg == "isdbgrid":
		e.ok("mongodb", "it answers (a sharded cluster)")
		return true
	default:
		e.ok("mongodb", "it answers (replica set %s)", hello.SetName)
		return true
	}
	return false
}

func (s *Stream) examineStream(ctx context.Context, e *examination) (token bson.Raw, opened bool) {
	const check = "change stream"
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	ns := s.Collection.Database().Name() + "." + s.Collection.Name()
	stream, err := s.Collection.Watch(bounded, mongo.Pipeline{}, s.options())
	if err == nil {
		token = stream.ResumeToken()
		closeStream(ctx, stream)
	}
	switch {
	case err == nil:
		e.ok(check, "it opens on %s", ns)
		return token, true
	case hasCode(err, codeUnauthorized):
		e.problem(check, "give the user the actions find and changeStream on it: the role read on the database has both",
			"the user may not open one on %s", ns)
	case hasCode(err, codeNotAReplicaSet):
		e.problem(check, "start the server with --replSet and run rs.initiate() once", "the server is no replica set")
	default:
		e.problem(check, "check MONGODB_DATABASE, MONGODB_COLLECTION, FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE",
			"none opens on %s: %v", ns, err)
	}
	return nil, false
}

// examineHistory asks whether the stream can go on from the checkpoint, and how long it could stay away.
func (s *Stream) examineHistory(ctx context.Context, e *examination) {
	const check = "history"
	snapshot, err := s.read(ctx)
	if err != nil || len(snapshot.Record.Progress.ResumeToken) == 0 {
		if err == nil || errors.Is(err, checkpoint.ErrNotFound) {
			e.ok(check, "there is no checkpoint to go on from yet")
		}
		return // an unreadable one has been told
	}
	_, err = s.resumable(ctx, snapshot.Record.Progress.ResumeToken)
	switch {
	case hasCode(err, codeChangeStreamHistoryLost), hasCode(err, codeChangeStreamFatal), hasCode(err, codeInvalidResumeToken):
		e.problem(check, "copy what is missing by hand and go on from now with ON_HISTORY_LOST=latest, or set a token that the oplog "+
			"still holds (producer token rewind); make the oplog larger", "the stream cannot go on from the checkpoint: %v", err)
	case err != nil:
		e.problem(check, "try again; if it stays, read the error", "the checkpoint could not be tried: %v", err)
	default:
		e.ok(check, "the stream can go on from the checkpoint (%s)", clock(timeOf(snapshot.Record.Progress.Position)))
	}
	oldest, note := s.oldest(ctx)
	if note != "" {
		e.ok("oplog window", "unknown: %s", note)
		return
	}
	now, err := s.now(ctx)
	if err != nil {
		e.problem("oplog window", "try again", "%v", err)
		return
	}
	e.ok("oplog window", "%d s: as long may every producer be stopped", int64(now.T)-int64(oldest.T))
}

// examineImages compares what is asked of pre- and post-images with what the collection keeps.
func (s *Stream) examineImages(ctx context.Context, e *examination) {
	const check = "pre-images"
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	kept, err := s.keepsImages(bounded)
	required := s.BeforeChange == options.Required || s.FullDocument == options.Required
	switch {
	case err != nil && required:
		e.problem(check, "give the user the action listCollections on the database, to have it checked", "unknown: %v", err)
	case err != nil:
		e.ok(check, "unknown: the collection's options cannot be read; none is required")
	case kept:
		e.ok(check, "the collection keeps them")
	case required:
		e.problem(check, fmt.Sprintf("run db.runCommand({collMod: %q, changeStreamPreAndPostImages: {enabled: true}}), or set "+
			"FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable and FULL_DOCUMENT=updateLookup", s.Collection.Name()),
			"required by the settings, and the collection does not keep them: its first update would stop the stream")
	default:
		e.ok(check, "the collection keeps none: a delete's aggregate is its documentKey._id")
	}
}

func (s *Stream) keepsImages(ctx context.Context) (bool, error) {
	found, err := s.Collection.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.Collection.Name()}})
	if err != nil {
		return false, err
	}
	for _, collection := range found {
		if enabled, ok := collection.Options.Lookup("changeStreamPreAndPostImages", "enabled").BooleanOK(); ok {
			return enabled, nil
		}
	}
	return false, nil
}
