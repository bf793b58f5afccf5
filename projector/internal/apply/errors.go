package apply

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrContended reports that the time for a transaction ran out because others wrote the same
// documents. It is no failure of the events: the others were committed in their place.
var ErrContended = errors.New("other transactions write the same documents")

// Class determines the reaction to an error.
type Class uint8

// The classes.
const (
	// None: there is no error.
	None Class = iota
	// Transient concerns the database as a whole, and may pass: retry, for as long as it takes.
	Transient
	// Unknown is an answer of the database to these writes with a code that is not known here:
	// retry, without holding up others.
	Unknown
	// Guarded means that the guard did not match: read it, and decide again.
	Guarded
	// TooLarge is a transaction that would be possible in parts.
	TooLarge
	// Permanent concerns the change itself: a retry cannot help.
	Permanent
)

// permanentCodes are the codes with which the server refuses a write for its content. The last ones
// come from indexes that cannot take a value of the document: of parallel arrays, hashed,
// geospatial and text indexes.
var permanentCodes = map[int]bool{
	mongodb.BadValue:                   true,
	mongodb.FailedToParse:              true,
	mongodb.TypeMismatch:               true,
	mongodb.Overflow:                   true,
	mongodb.InvalidLength:              true,
	mongodb.InvalidBSON:                true,
	mongodb.PathNotViable:              true,
	mongodb.ConflictingUpdateOperators: true,
	mongodb.DollarPrefixedFieldName:    true,
	mongodb.InvalidIDField:             true,
	mongodb.NotSingleValueField:        true,
	mongodb.InvalidDBRef:               true,
	mongodb.EmptyFieldName:             true,
	mongodb.DottedFieldName:            true,
	mongodb.ImmutableField:             true,
	mongodb.InvalidNamespace:           true,
	mongodb.DocumentValidationFailure:  true,
	mongodb.BSONObjectTooLarge:         true,
	mongodb.KeyTooLong:                 true,
	mongodb.ResultingDocumentTooLarge:  true,
	mongodb.OplogEntryTooLarge:         true,

	mongodb.CannotIndexParallelArrays: true,
	mongodb.CannotBuildIndexKeys:      true,
	mongodb.HashedIndexOfArray:        true,
	mongodb.GeoKeysNotExtracted:       true,
	mongodb.TextLanguageNotText:       true,
	mongodb.TextLanguageUnsupported:   true,
}

// transientCodes are the codes of a deployment that elects, stops, is overloaded, or denies access:
// they do not concern the change. A code that is in none of these tables is [Unknown].
var transientCodes = map[int]bool{
	6: true, 7: true, 13: true, 18: true, 20: true, 24: true, 43: true, 46: true, 50: true, 63: true, 64: true, 79: true, 89: true, 91: true, 100: true,
	mongodb.WriteConflict: true, 117: true, 133: true, 134: true, 150: true, 189: true, 202: true, 234: true, 239: true, 246: true, 251: true, 262: true, 267: true,
	279: true, 290: true, 317: true, 358: true, 365: true, 384: true, 402: true, 462: true, 8000: true, 9001: true,
	10058: true, 10107: true, 11600: true, 11601: true, 11602: true, 13388: true, 13435: true, 13436: true, 14031: true, 16500: true,
}

// tooLargeCodes are the codes of a transaction that writes too much at once.
var tooLargeCodes = map[int]bool{mongodb.TransactionTooLarge: true, mongodb.TransactionTooLargeForCache: true}

// duplicateKeyCodes: a conditional upsert whose condition does not hold collides with the document
// that is there; so does a write that breaks a unique index.
var duplicateKeyCodes = map[int]bool{mongodb.DuplicateKey: true, mongodb.DuplicateKeyUpdate: true, mongodb.DuplicateKeyCapped: true}

// Classify returns the class of an error of a projection or of the driver. While the majority is
// late, write errors beside it concern only the primary's data, which may be rolled back: the same
// writes are retried until the majority answers.
func Classify(err error) Class {
	switch {
	case err == nil:
		return None
	case errors.Is(err, errRaced):
		return Transient
	case errors.Is(err, errGuard):
		return Guarded
	case errors.Is(err, projection.ErrPermanent), errors.Is(err, driver.ErrDocumentTooLarge):
		return Permanent
	}
	if _, ok := errors.AsType[mongo.MarshalError](err); ok {
		return Permanent
	}
	if bulk, ok := errors.AsType[mongo.BulkWriteException](err); ok {
		if bulk.WriteConcernError != nil {
			return Transient
		}
		return classifyWrites(bulk.WriteErrors, func(e mongo.BulkWriteError) mongo.WriteError { return e.WriteError })
	}
	if write, ok := errors.AsType[mongo.WriteException](err); ok {
		if write.WriteConcernError != nil {
			return Transient
		}
		return classifyWrites(write.WriteErrors, func(e mongo.WriteError) mongo.WriteError { return e })
	}
	if server, ok := errors.AsType[mongo.CommandError](err); ok {
		if server.Code == 0 || labelled(err, driver.NetworkError) {
			return Transient
		}
		return classifyWrite(mongo.WriteError{Code: int(server.Code), Raw: server.Raw})
	}
	return Transient
}

// classifyWrites returns the gravest class.
func classifyWrites[E any](all []E, of func(E) mongo.WriteError) Class {
	worst := Transient
	for _, e := range all {
		worst = max(worst, classifyWrite(of(e)))
	}
	return worst
}

func classifyWrite(e mongo.WriteError) Class {
	switch {
	case duplicateKeyCodes[e.Code] && onlyID(e.Raw):
		return Guarded
	case duplicateKeyCodes[e.Code], permanentCodes[e.Code]:
		return Permanent
	case tooLargeCodes[e.Code]:
		return TooLarge
	case transientCodes[e.Code]:
		return Transient
	}
	return Unknown
}

// ambiguousDuplicate reports whether a duplicate key may be that of another unique index than
// _id's, because the server does not name it.
func ambiguousDuplicate(e mongo.WriteError) bool {
	_, named := e.Raw.Lookup("keyPattern").DocumentOK()
	return duplicateKeyCodes[e.Code] && !named
}

// Refused reports whether the server refused a command itself, because a right is missing or the
// command is unknown.
func Refused(err error) bool {
	server, ok := errors.AsType[mongo.CommandError](err)
	return ok && (permanentCodes[int(server.Code)] || mongodb.HasCode(server, mongodb.Unauthorized, mongodb.AtlasError,
		mongodb.CommandNotFound, mongodb.IndexOptionsConflict, mongodb.IndexKeySpecsConflict, mongodb.CommandNotSupported))
}

// onlyID reports whether a duplicate key is that of _id, which identifies the guard's document, and
// not of some other unique index. If the server does not name the index, it may be: the guard
// decides (see ambiguousDuplicate).
func onlyID(raw bson.Raw) bool {
	pattern, ok := raw.Lookup("keyPattern").DocumentOK()
	if !ok {
		return true
	}
	elements, err := pattern.Elements()
	return err == nil && len(elements) == 1 && elements[0].Key() == "_id"
}
