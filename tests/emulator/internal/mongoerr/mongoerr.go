// Package mongoerr holds the one error type that crosses the layers of the
// embedded MongoDB: what a real server would put into an error reply.
//
// Codes and their names are those of MongoDB 8.0. Labels are not decided here:
// they depend on the command and the session, so the dispatcher adds them.
package mongoerr

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Error is one server error.
type Error struct {
	Code   int32
	Msg    string
	Labels []string
	Extra  bson.D // further reply fields, such as keyPattern and keyValue
}

// Codes the embedded server uses.
const (
	InternalError               = 1
	BadValue                    = 2
	GraphContainsCycle          = 5
	HostUnreachable             = 6
	HostNotFound                = 7
	FailedToParse               = 9
	Unauthorized                = 13
	TypeMismatch                = 14
	IllegalOperation            = 20
	LockTimeout                 = 24
	NamespaceNotFound           = 26
	IndexNotFound               = 27
	PathNotViable               = 28
	ConflictingUpdateOperators  = 40
	CursorNotFound              = 43
	NoMatchingDocument          = 47
	NamespaceExists             = 48
	MaxTimeMSExpired            = 50
	DollarPrefixedFieldName     = 52
	CommandNotFound             = 59
	WriteConcernTimeout         = 64
	ImmutableField              = 66
	CannotCreateIndex           = 67
	InvalidOptions              = 72
	InvalidNamespace            = 73
	IndexOptionsConflict        = 85
	IndexKeySpecsConflict       = 86
	OperationFailed             = 96
	WriteConflict               = 112
	CommandNotSupported         = 115
	DocumentValidationFailure   = 121
	CappedPositionLost          = 136
	ViewNotSupported            = 166
	OptionNotSupportedOnView    = 167
	TransactionTooOld           = 225
	CursorKilled                = 237
	NotImplemented              = 238
	SnapshotTooOld              = 239
	SnapshotUnavailable         = 246
	Overflow                    = 15
	ConflictingOperation        = 117
	QueryPlanKilled             = 175
	IncompleteHistory           = 217
	ResultingDocumentTooLarge   = 17419
	UpsertedDocumentTooLarge    = 17420
	NoSuchTransaction           = 251
	TransactionCommitted        = 256
	OperationNotInTransaction   = 263
	InvalidResumeToken          = 260
	ChangeStreamFatalError      = 280
	ChangeStreamHistoryLost     = 286
	APIVersionError             = 322
	APIStrictError              = 323
	UnknownReplWriteConcern     = 79
	UnsatisfiableWriteConcern   = 100
	NotWritablePrimary          = 10107
	BSONObjectTooLarge          = 10334
	DuplicateKey                = 11000
	InterruptedAtShutdown       = 11600
	InterruptedDueToStateChange = 11602
	NotPrimaryNoSecondaryOk     = 13435
	UnknownStage                = 40324
	UnknownField                = 40415
	MissingField                = 40414
)

var names = map[int32]string{
	1: "InternalError", 2: "BadValue", 6: "HostUnreachable", 7: "HostNotFound", 9: "FailedToParse", 11: "UserNotFound", 13: "Unauthorized",
	14: "TypeMismatch", 15: "Overflow", 117: "ConflictingOperationInProgress", 165: "ViewDepthLimitExceeded", 175: "QueryPlanKilled",
	217: "IncompleteTransactionHistory", 241: "ConversionFailure", 54: "NotSingleValueField", 111: "NotExactValueField", 13113: "MergeStageNoMatchingDocument", 16: "InvalidLength", 22: "InvalidBSON", 53: "InvalidIdField", 56: "EmptyFieldName", 156: "CannotBackfillArray",
	168: "InvalidPipelineOperator", 171: "CannotIndexParallelArrays", 20: "IllegalOperation", 24: "LockTimeout", 26: "NamespaceNotFound", 27: "IndexNotFound", 28: "PathNotViable",
	40: "ConflictingUpdateOperators", 43: "CursorNotFound", 47: "NoMatchingDocument", 48: "NamespaceExists",
	50: "MaxTimeMSExpired", 52: "DollarPrefixedFieldName", 59: "CommandNotFound", 63: "StaleShardVersion", 64: "WriteConcernTimeout",
	66: "ImmutableField", 67: "CannotCreateIndex", 72: "InvalidOptions", 73: "InvalidNamespace",
	85: "IndexOptionsConflict", 86: "IndexKeySpecsConflict", 89: "NetworkTimeout", 91: "ShutdownInProgress", 96: "OperationFailed",
	100: "UnsatisfiableWriteConcern", 112: "WriteConflict", 115: "CommandNotSupported", 121: "DocumentValidationFailure", 133: "FailedToSatisfyReadPreference",
	134: "ReadConcernMajorityNotAvailableYet", 136: "CappedPositionLost", 150: "StaleEpoch", 166: "CommandNotSupportedOnView", 167: "OptionNotSupportedOnView", 5: "GraphContainsCycle",
	189: "PrimarySteppedDown", 225: "TransactionTooOld", 234: "RetryChangeStream", 237: "CursorKilled", 238: "NotImplemented",
	239: "SnapshotTooOld", 246: "SnapshotUnavailable", 251: "NoSuchTransaction", 256: "TransactionCommitted", 260: "InvalidResumeToken",
	262: "ExceededTimeLimit", 263: "OperationNotSupportedInTransaction", 267: "PreparedTransactionInProgress",
	280: "ChangeStreamFatalError", 286: "ChangeStreamHistoryLost", 322: "APIVersionError", 323: "APIStrictError", 79: "UnknownReplWriteConcern", 9001: "SocketException", 10107: "NotWritablePrimary",
	10334: "BSONObjectTooLarge", 11000: "DuplicateKey", 11600: "InterruptedAtShutdown", 11601: "Interrupted",
	11602: "InterruptedDueToReplStateChange", 13388: "StaleConfig", 13435: "NotPrimaryNoSecondaryOk", 13436: "NotPrimaryOrSecondary",
}

// Name returns the server's name for a code; codes that never got one are "Location<code>".
func Name(code int32) string {
	if n, ok := names[code]; ok {
		return n
	}
	return fmt.Sprintf("Location%d", code)
}

// New builds an error with a formatted message.
func New(code int32, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Unsupported names something a real server knows and this one does not.
func Unsupported(format string, args ...any) *Error {
	return New(NotImplemented, "the embedded MongoDB does not support "+format, args...)
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("(%s) %s", Name(e.Code), e.Msg) }

// From turns any error into a server error; foreign ones become InternalError.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(InternalError, "%v", err)
}

// Is reports whether err carries code.
func Is(err error, code int32) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
