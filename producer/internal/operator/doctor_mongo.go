package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

func (s *Stream) examineMongo(ctx context.Context, e *checkup.Findings) {
	bounded, cancel := s.withTimeout(ctx)
	answers := e.Mongo(bounded, s.Collection.Database().Client(), "mongodb", "MONGODB_URI", "change streams")
	cancel()
	if !answers {
		return
	}
	s.examineVersion(ctx, e)
	token, opened := s.examineStream(ctx, e)
	if !opened {
		return
	}
	switch {
	case len(token) == 0:
		e.OK("tokens", "none before the first event on this deployment; if they cannot be sorted, positions are counted")
	case envelope.Sortable(envelope.TokenText(token)):
		s.examineForm(ctx, e, envelope.TokenForm(envelope.TokenText(token)))
	default:
		e.OK("tokens", "not sortable: positions are counted")
	}
	s.examineSettings(ctx, e, len(token) > 0 && !envelope.Sortable(envelope.TokenText(token)))
	s.examineHistory(ctx, e)
	s.examineImages(ctx, e)
	s.examineTypes(ctx, e)
}

// examineVersion reports which features the server lacks.
func (s *Stream) examineVersion(ctx context.Context, e *checkup.Findings) {
	const check = "version"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	version, err := mongodb.ServerVersion(bounded, s.Collection.Database().Client())
	lacks := strings.Join(version.Lacks(), ", ")
	switch {
	case err != nil:
		e.OK(check, "unknown: %v", err)
	case !version.Supported():
		e.Problem(check, "use 4.4 or later", "MongoDB %s is older than what is supported; it lacks %s", version, lacks)
	case lacks != "":
		e.OK(check, "MongoDB %s lacks %s", version, lacks)
	default:
		e.OK(check, "MongoDB %s", version)
	}
}

func (s *Stream) examineStream(ctx context.Context, e *checkup.Findings) (token bson.Raw, opened bool) {
	const check = "change stream"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	ns := s.Collection.Database().Name() + "." + s.Collection.Name()
	stream, splits, err := s.watch(bounded, s.options())
	if err == nil {
		token = stream.ResumeToken()
		mongodb.CloseCursor(ctx, stream)
	}
	switch {
	case err == nil && len(s.Pipeline) > 0:
		e.OK(check, "it opens on %s, through the %d stages of PIPELINE", ns, len(s.Pipeline))
	case err == nil:
		e.OK(check, "it opens on %s", ns)
	case mongodb.HasCode(err, mongodb.Unauthorized):
		e.Problem(check, "give the user the actions find and changeStream on it: the role read on the database has both",
			"the user may not open one on %s", ns)
	case mongodb.HasCode(err, mongodb.NotAReplicaSet):
		e.Problem(check, "start the server with --replSet and run rs.initiate() once", "the server is not a replica set")
	default:
		e.Problem(check, "check MONGODB_DATABASE, MONGODB_COLLECTION, PIPELINE, FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE",
			"no change stream opens on %s: %v", ns, err)
	}
	if err != nil {
		return nil, false
	}
	if splits {
		e.OK("large events", "the deployment splits them")
	} else {
		e.OK("large events", "the deployment does not split them: a change of more than 16 MB would stop the stream")
	}
	return token, true
}

// examineForm compares the version of the deployment's tokens with that of the stream's positions.
func (s *Stream) examineForm(ctx context.Context, e *checkup.Findings, form string) {
	const check = "tokens"
	snapshot, err := s.read(ctx)
	position := snapshot.Record.Progress.Position
	if err != nil || envelope.TokenForm(position) == "" || envelope.TokenForm(position) == form {
		e.OK(check, "sortable, version %s", form)
		return
	}
	if !changes.CanTranslate(form, envelope.TokenForm(position)) {
		e.Problem(check, "use a newer release of the producer, or go back to the former version of MongoDB",
			"version %s, which cannot be compared with the stream's positions, version %s", form, envelope.TokenForm(position))
		return
	}
	e.OK(check, "sortable, version %s; positions keep the stream's version, %s", form, envelope.TokenForm(position))
}

// examineSettings checks, if positions are counted, that the same events are counted as before.
func (s *Stream) examineSettings(ctx context.Context, e *checkup.Findings, counting bool) {
	const check = "reading settings"
	snapshot, err := s.read(ctx)
	progress := snapshot.Record.Progress
	counted := err == nil && changes.Counted(progress.Position)
	switch {
	case !counting && !counted: // no setting changes a token
	case s.Checks.UnstableFilter:
		e.Problem(check, "set FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE to default and off (or to required), or match something else",
			"positions are counted, and a $match of PIPELINE reads documents that are looked up: it may pass other changes the next time")
	case counted && progress.Settings != s.Settings:
		e.Problem(check, "restore the former PIPELINE and collection; or stop the producers cleanly and accept these with `producer token renumber`",
			"positions are counted, and what is counted has changed since the checkpoint")
	default:
		e.OK(check, "positions are counted, with these settings")
	}
}

// examineHistory checks whether the stream can continue from the checkpoint, and how long it could
// be stopped.
func (s *Stream) examineHistory(ctx context.Context, e *checkup.Findings) {
	const check = "history"
	snapshot, err := s.read(ctx)
	if err != nil || len(snapshot.Record.Progress.ResumeToken) == 0 {
		if err == nil || errors.Is(err, checkpoint.ErrNotFound) {
			e.OK(check, "there is no checkpoint to continue from yet")
		}
		return // an unreadable checkpoint has been reported
	}
	_, err = s.continuable(ctx, snapshot.Record.Progress.ResumeToken)
	pastIt, large := changes.TooLargeRemedy(err)
	switch {
	case errors.Is(err, errHistoryGone), mongodb.HasCode(err, mongodb.ChangeStreamHistoryLost, mongodb.ChangeStreamFatalError, mongodb.InvalidResumeToken):
		e.Problem(check, "copy what is missing by hand and continue from now with ON_HISTORY_LOST=latest, or set a token that the oplog "+
			"still holds (producer token rewind); make the oplog larger", "the stream cannot continue from the checkpoint: %v", err)
	case large:
		e.Problem(check, pastIt, "the change after the checkpoint is larger than 16 MB, and the deployment cannot split it: %v", err)
	case err != nil:
		e.Problem(check, "try again; if it persists, read the error", "the checkpoint could not be checked: %v", err)
	default:
		e.OK(check, "the stream can continue from the checkpoint (%s)", formatTime(timeOf(snapshot.Record.Progress)))
	}
	oldest, note := s.oldest(ctx)
	if note != "" {
		e.OK("oplog window", "unknown: %s", note)
		return
	}
	now, err := s.clusterTime(ctx)
	if err != nil {
		e.Problem("oplog window", "try again", "%v", err)
		return
	}
	e.OK("oplog window", "%d s: every producer may be stopped for that long", int64(now.T)-int64(oldest.T))
}

// examineImages compares the requested pre- and post-images with those that the collection keeps.
func (s *Stream) examineImages(ctx context.Context, e *checkup.Findings) {
	const check = "pre-images"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	kept, _, err := changes.KeepsImages(bounded, s.Collection)
	required := s.BeforeChange == options.Required || s.FullDocument == options.Required
	switch {
	case err != nil && required:
		e.Problem(check, "give the user the action listCollections on the database, to have it checked", "unknown: %v", err)
	case err != nil:
		e.OK(check, "unknown: the collection's options cannot be read; none is required")
	case kept:
		e.OK(check, "the collection keeps them")
	case required:
		e.Problem(check, fmt.Sprintf("run db.runCommand({collMod: %q, changeStreamPreAndPostImages: {enabled: true}}), or set "+
			"FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable and FULL_DOCUMENT=updateLookup", s.Collection.Name()),
			"required by the settings, and the collection does not keep them: its first update would stop the stream")
	default:
		e.OK(check, "the collection keeps none, and none is required")
	}
	s.examineAggregates(ctx, e)
}

// examineAggregates checks that the aggregate of every update and delete can be determined, and is
// the same at every reading.
func (s *Stream) examineAggregates(ctx context.Context, e *checkup.Findings) {
	const check = "aggregates"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	switch err := s.Checks.Images(bounded); {
	case errors.Is(err, changes.ErrNoImages):
		e.Problem(check, "follow the advice of the error", "%v", err)
	case err != nil:
		e.Problem(check, "try again; if it persists, read the error", "the collection could not be checked: %v", err)
	case s.Fingerprint.Updates == "documentKey" && s.Fingerprint.Deletes == "documentKey" && s.Fingerprint.AggregateIDPath != "_id":
		e.OK(check, "updates and deletes use documentKey._id; inserts and replaces use %s", s.Fingerprint.AggregateIDPath)
	default:
		e.OK(check, "%s determines it for every change, or the change stops the stream", s.Fingerprint.AggregateIDPath)
	}
	if snapshot, err := s.read(ctx); err == nil {
		if changed, _ := snapshot.Record.Fingerprint.Diff(s.Fingerprint.Inherit(snapshot.Record.Fingerprint)); len(changed) > 0 {
			e.Problem("settings", "restore them, or accept the new ones: producer reading", "another producer published with other settings: %s",
				strings.Join(changed, "; "))
		}
	}
}

// examineTypes checks for versions and aggregate ids with misleading types.
func (s *Stream) examineTypes(ctx context.Context, e *checkup.Findings) {
	const check = "types"
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	sample, err := s.Checks.Types(bounded)
	if err != nil {
		e.OK(check, "unknown: %v", err)
		return
	}
	looked := commandline.Count(sample.Documents, "document") + " examined"
	if sample.Versions != "" {
		e.Problem(check, sample.VersionRemedy, "%s (%s)", sample.Versions, looked)
	}
	if sample.Aggregates != "" {
		e.Problem(check, sample.AggregateRemedy, "%s (%s)", sample.Aggregates, looked)
	}
	if sample.Versions == "" && sample.Aggregates == "" {
		e.OK(check, "%s: versions are integers or absent, and no two aggregate ids of different types have the same text", looked)
	}
}
