package changes

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrHistoryLost: the server cannot go on from the token, because its oplog no longer reaches back to it or because
// the token does not belong to this stream.
var ErrHistoryLost = errors.New("the change stream cannot go on from the checkpoint: changes in between may be lost")

// ErrBeginningLost: the same, of a new stream that shall begin in the past.
var ErrBeginningLost = errors.New("the oplog does not reach back to START_AT: set a later one, or START_FROM=latest without it, and carry " +
	"over by hand what was changed before")

// ErrReplaced: another collection was given the watched one's name.
var ErrReplaced = errors.New("the watched collection was replaced by another one, with renameCollection or $out, whose documents are not in " +
	"the change stream (ON_COLLECTION_REPLACED=fail): bring the read models in line with them, then go on with " +
	"ON_COLLECTION_REPLACED=continue until the stream is past it")

// remedy is what to do about an error of the change stream.
type remedy int

const (
	reopen      remedy = iota // anything that may recover by itself: the network, an election, a killed cursor
	historyLost               // the policy ON_HISTORY_LOST decides
	fatal                     // it does not recover by itself: somebody must change something
)

// attempt is what the reader was doing when an error came: the same code can mean different things.
type attempt struct {
	// opening: the server refused to open the stream, as opposed to ending one that was open.
	opening bool
	// resuming: the stream was opened behind a token.
	resuming bool
	// first: its first answer has not come yet.
	first bool
	// answered: a request that followed the opening was answered without an error.
	answered bool
}

// lost are the codes that say that the server cannot go on from a token: MongoDB's, but for the last.
var lost = map[int]bool{
	mongodb.ChangeStreamHistoryLost: true,
	mongodb.ChangeStreamFatalError:  true, // the token was not found in the stream
	mongodb.InvalidResumeToken:      true,
	mongodb.CappedPositionLost:      true, // Amazon DocumentDB
}

// lostWhenResuming are codes of a request that cannot be understood. When it resumes from a token, it is the token that cannot be:
// Azure Cosmos DB answers InvalidOptions to an expired token, Amazon DocumentDB FailedToParse.
var lostWhenResuming = map[int]bool{
	mongodb.FailedToParse:  true,
	mongodb.InvalidOptions: true,
}

// requiredImage is what to do where MongoDB refuses a change whose image is required: it does not say which one that is.
const requiredImage = "FULL_DOCUMENT or FULL_DOCUMENT_BEFORE_CHANGE is required, and the collection did not keep that image of the next change, or it " +
	"has expired; with FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable (or FULL_DOCUMENT=whenAvailable) the producer says which change it is, and what to do"

// refused are the codes of errors that do not recover by themselves, with what to do: MongoDB's where no other vendor is named.
var refused = map[int]string{
	mongodb.BadValue:                "check PIPELINE, FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE",
	mongodb.FailedToParse:           "check PIPELINE",
	mongodb.Unauthorized:            "give the user the actions find and changeStream on the collection",
	mongodb.TypeMismatch:            "check PIPELINE",
	mongodb.AuthenticationFailed:    "check user, password and authSource in MONGODB_URI",
	mongodb.IllegalOperation:        "check PIPELINE",
	mongodb.NoMatchingDocument:      requiredImage,
	mongodb.CommandNotFound:         "the deployment has no change streams",
	mongodb.InvalidOptions:          "check FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE; what a deployment does not support must be off or default",
	mongodb.InvalidNamespace:        "check MONGODB_DATABASE and MONGODB_COLLECTION",
	mongodb.CommandNotSupported:     "the deployment does not support these settings of a change stream, or has none",
	mongodb.InvalidPipelineOperator: "check PIPELINE",
	mongodb.AtlasError:              "check user and roles in Atlas", // MongoDB Atlas
	mongodb.NotOnView:               "MONGODB_COLLECTION is a view, and only collections have change streams: name the collection that it shows",
	mongodb.FeatureNotSupported:     "the deployment does not support these settings; set FULL_DOCUMENT=default and FULL_DOCUMENT_BEFORE_CHANGE=off", // Amazon DocumentDB
	mongodb.StageNotSupported:       "the deployment does not support a stage; check PIPELINE",                                                       // Amazon DocumentDB
	mongodb.BSONObjectTooLarge:      "a change is larger than 16 MB, and this deployment cannot split it; " + tooLarge,
	mongodb.UnrecognizedStage:       "the deployment does not know a stage; check PIPELINE",
	mongodb.ResumeTokenVersion: "the checkpoint's resume token is of a newer version of MongoDB than this server: upgrade the server, or go back with " +
		"`producer token rewind` to a time that the oplog still holds",
	mongodb.NotAReplicaSet: "change streams need a replica set; start the server with --replSet",
}

// firstAssertion is where the codes begin that have no names: assertions in the server's code. At the opening of a stream
// they say what is wrong with its stages and options.
const firstAssertion = 10000

// classify chooses the remedy by code alone; messages differ between versions and vendors. After an unknown code the stream is
// opened again, with growing pauses and a warning each time.
func classify(err error, at attempt) remedy {
	if errors.Is(err, errForgotten) {
		return historyLost
	}
	server, ok := errors.AsType[mongo.ServerError](err)
	if !ok {
		return reopen
	}
	if server.HasErrorLabel("ResumableChangeStreamError") {
		return reopen
	}
	for _, code := range server.ErrorCodes() {
		switch {
		case lost[code], at.resuming && lostWhenResuming[code]:
			return historyLost
		case refused[code] != "", at.opening && code >= firstAssertion && !mongodb.Passing(code):
			return fatal
		}
	}
	return reopen
}
