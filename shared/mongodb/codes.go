package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The server's error codes, by the server's own names. [MongoDB src/mongo/base/error_codes.yml]
// Those at the end have no such name: they are assertions in its code, or codes of other vendors.
const (
	BadValue                           = 2
	HostUnreachable                    = 6
	HostNotFound                       = 7
	FailedToParse                      = 9
	Unauthorized                       = 13
	TypeMismatch                       = 14
	Overflow                           = 15
	InvalidLength                      = 16
	AuthenticationFailed               = 18
	IllegalOperation                   = 20
	InvalidBSON                        = 22
	LockTimeout                        = 24
	NamespaceNotFound                  = 26
	PathNotViable                      = 28
	ConflictingUpdateOperators         = 40
	CursorNotFound                     = 43
	NoMatchingDocument                 = 47
	NamespaceExists                    = 48
	MaxTimeMSExpired                   = 50
	DollarPrefixedFieldName            = 52
	InvalidIDField                     = 53
	NotSingleValueField                = 54
	InvalidDBRef                       = 55
	EmptyFieldName                     = 56
	DottedFieldName                    = 57
	CommandNotFound                    = 59
	StaleShardVersion                  = 63
	ImmutableField                     = 66
	InvalidOptions                     = 72
	InvalidNamespace                   = 73
	IndexOptionsConflict               = 85
	IndexKeySpecsConflict              = 86
	NetworkTimeout                     = 89
	ShutdownInProgress                 = 91
	WriteConflict                      = 112
	CommandNotSupported                = 115
	DocumentValidationFailure          = 121
	FailedToSatisfyReadPreference      = 133
	ReadConcernMajorityNotAvailable    = 134
	CappedPositionLost                 = 136
	StaleEpoch                         = 150
	NotOnView                          = 166 // CommandNotSupportedOnView
	InvalidPipelineOperator            = 168
	CannotIndexParallelArrays          = 171
	QueryPlanKilled                    = 175
	PrimarySteppedDown                 = 189
	CannotBuildIndexKeys               = 201
	NetworkInterfaceTimeout            = 202 // NetworkInterfaceExceededTimeLimit
	RetryChangeStream                  = 234
	CursorKilled                       = 237
	SnapshotTooOld                     = 239
	SnapshotUnavailable                = 246
	StaleChunkHistory                  = 250
	TransactionTooLarge                = 257
	InvalidResumeToken                 = 260
	ExceededTimeLimit                  = 262
	OperationNotSupportedInTransaction = 263
	ChangeStreamFatalError             = 280
	ChangeStreamHistoryLost            = 286
	TransactionTooLargeForCache        = 359
	AtlasError                         = 8000
	SocketException                    = 9001
	NotWritablePrimary                 = 10107
	BSONObjectTooLarge                 = 10334
	DuplicateKey                       = 11000
	InterruptedAtShutdown              = 11600
	Interrupted                        = 11601
	InterruptedDueToReplStateChange    = 11602
	StaleConfig                        = 13388
	NotPrimaryNoSecondaryOk            = 13435
	NotPrimaryOrSecondary              = 13436

	FeatureNotSupported       = 303   // Amazon DocumentDB's
	StageNotSupported         = 304   // the same
	DuplicateKeyUpdate        = 11001 // of old servers
	DuplicateKeyCapped        = 12582 // the same
	CosmosTooManyRequests     = 16500 // Azure Cosmos DB's
	GeoKeysNotExtracted       = 16755
	HashedIndexOfArray        = 16766
	TextLanguageNotText       = 17261
	TextLanguageUnsupported   = 17262
	KeyTooLong                = 17280
	ResultingDocumentTooLarge = 17419 // by an update
	OplogEntryTooLarge        = 17420 // the same, in a transaction's oplog entry
	UnrecognizedStage         = 40324
	NotAReplicaSet            = 40573
	ResumeTokenVersion        = 50795 // a resume token of a newer version of MongoDB
)

// HasCode reports whether the server answered with one of the codes.
func HasCode(err error, codes ...int) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(codes, server.HasErrorCode)
}

// SnapshotGone reports whether a server cannot read as of a cluster time: its history does not
// reach back so far, an index or a collMod came after it, a chunk of a sharded collection has moved
// since, or a member that has not seen the time refuses it as an invalid option.
func SnapshotGone(err error) bool {
	return HasCode(err, SnapshotTooOld, SnapshotUnavailable, StaleChunkHistory, InvalidOptions)
}

// ClusterTime asks a deployment for its cluster time; zero if it has none. It is a point in the
// oplog rather than a clock: it stands still while nothing is written, for up to ten seconds. For
// the time, see [Now].
func ClusterTime(ctx context.Context, database *mongo.Database) (bson.Timestamp, error) {
	reply, err := database.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Raw()
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("ask MongoDB for its cluster time: %w", err)
	}
	t, i, _ := reply.Lookup("$clusterTime", "clusterTime").TimestampOK()
	return bson.Timestamp{T: t, I: i}, nil
}

// Now asks a server for the time of its clock; zero if it does not answer with one.
func Now(ctx context.Context, database *mongo.Database) (time.Time, error) {
	reply, err := database.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask MongoDB for the time: %w", err)
	}
	if ms, ok := reply.Lookup("localTime").DateTimeOK(); ok {
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, nil
}
