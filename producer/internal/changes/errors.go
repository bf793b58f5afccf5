package changes

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrHistoryLost reports that the server cannot continue from the token, because its oplog no
// longer reaches back to it or because the token belongs to another stream.
var ErrHistoryLost = errors.New("the change stream cannot continue from the checkpoint: changes in between may be lost")

// ErrBeginningLost is [ErrHistoryLost] for a new stream with START_AT.
var ErrBeginningLost = errors.New("the oplog does not reach back to START_AT: set a later one, or START_FROM=latest without it, and copy " +
	"earlier changes by hand")

// ErrReplaced reports that another collection was given the watched collection's name.
var ErrReplaced = errors.New("the watched collection was replaced by another one, with renameCollection or $out, whose documents are not in " +
	"the change stream (ON_COLLECTION_REPLACED=fail): bring the read models in line with them, then continue with " +
	"ON_COLLECTION_REPLACED=continue until the stream is past this event")

// remedy is how to react to an error of the change stream.
type remedy int

const (
	reopen      remedy = iota // anything that may recover: the network, an election, a killed cursor
	historyLost               // the policy ON_HISTORY_LOST decides
	fatal                     // it does not recover until an operator changes something
)

// openState is the state of the stream when an error occurred. The same code can have different
// meanings.
type openState struct {
	// opening: the server refused to open the stream, as opposed to ending an open one.
	opening bool
	// resuming: the stream was opened after a token.
	resuming bool
	// first: the first response has not arrived yet.
	first bool
	// answered: a request after the opening succeeded.
	answered bool
}

// lostCodes are the codes of a server that cannot continue from a token. All but the last are
// MongoDB's.
var lostCodes = map[int]bool{
	mongodb.ChangeStreamHistoryLost: true,
	mongodb.ChangeStreamFatalError:  true, // the token was not found in the stream
	mongodb.InvalidResumeToken:      true,
	mongodb.CappedPositionLost:      true, // Amazon DocumentDB
}

// lostCodesWhenResuming are codes of a malformed request. In a request that resumes from a token,
// the token is the malformed part: Azure Cosmos DB returns InvalidOptions for an expired token,
// Amazon DocumentDB FailedToParse.
var lostCodesWhenResuming = map[int]bool{
	mongodb.FailedToParse:  true,
	mongodb.InvalidOptions: true,
}

// requiredImageRemedy is for a change whose required image is missing. MongoDB does not report
// which change that is.
const requiredImageRemedy = "FULL_DOCUMENT or FULL_DOCUMENT_BEFORE_CHANGE is required, and the collection did not keep that image of the next change, or it " +
	"has expired; with FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable (or FULL_DOCUMENT=whenAvailable) the producer reports which change it is, and what to do"

// fatalCodes are the codes of errors that do not recover, with the remedy. They are MongoDB's
// unless another vendor is named.
var fatalCodes = map[int]string{
	mongodb.BadValue:                "check PIPELINE, FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE",
	mongodb.FailedToParse:           "check PIPELINE",
	mongodb.Unauthorized:            "give the user the actions find and changeStream on the collection",
	mongodb.TypeMismatch:            "check PIPELINE",
	mongodb.AuthenticationFailed:    "check user, password and authSource in MONGODB_URI",
	mongodb.IllegalOperation:        "check PIPELINE",
	mongodb.NoMatchingDocument:      requiredImageRemedy,
	mongodb.CommandNotFound:         "the deployment has no change streams",
	mongodb.InvalidOptions:          "check FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE; what a deployment does not support must be off or default",
	mongodb.InvalidNamespace:        "check MONGODB_DATABASE and MONGODB_COLLECTION",
	mongodb.CommandNotSupported:     "the deployment does not support these settings of a change stream, or has none",
	mongodb.InvalidPipelineOperator: "check PIPELINE",
	mongodb.AtlasError:              "check user and roles in Atlas", // MongoDB Atlas
	mongodb.NotOnView:               "MONGODB_COLLECTION is a view or a time series collection, and neither has change streams; set a view's underlying collection",
	mongodb.FeatureNotSupported:     "the deployment does not support these settings; set FULL_DOCUMENT=default and FULL_DOCUMENT_BEFORE_CHANGE=off", // Amazon DocumentDB
	mongodb.StageNotSupported:       "the deployment does not support a stage; check PIPELINE",                                                       // Amazon DocumentDB
	mongodb.BSONObjectTooLarge:      "a change is larger than 16 MB, and this deployment cannot split it; " + tooLargeRemedy,
	mongodb.UnrecognizedStage:       "the deployment does not support a stage; check PIPELINE",
	mongodb.ResumeTokenVersion: "the checkpoint's resume token is of a newer version of MongoDB than this server: upgrade the server, or go back with " +
		"`producer token rewind` to a time that the oplog still holds",
	mongodb.NotAReplicaSet: "change streams need a replica set; start the server with --replSet",
}

// firstAssertion is the first of the unnamed codes: assertions in the server's code. When a stream
// is opened they report an error in its stages or options.
const firstAssertion = 10000

// classify chooses the remedy by code alone; messages differ between versions and vendors. After an
// unknown code the stream is opened again, with growing pauses and a warning each time.
func classify(err error, at openState) remedy {
	if errors.Is(err, errHistoryGone) {
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
		case lostCodes[code], at.resuming && lostCodesWhenResuming[code]:
			return historyLost
		case fatalCodes[code] != "", at.opening && code >= firstAssertion && !mongodb.Passing(code):
			return fatal
		}
	}
	return reopen
}
