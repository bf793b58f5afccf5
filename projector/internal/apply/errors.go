package apply

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// Class is what to do about an error.
type Class uint8

// The classes.
const (
	// None is no error.
	None Class = iota
	// Transient may recover by itself: retry, for as long as it takes.
	Transient
	// Guarded means that the guard did not match: read it, and decide again.
	Guarded
	// Permanent is about the change itself: a retry cannot help.
	Permanent
)

// permanentCodes are the server's ways of refusing a write for what it is. Every other code is transient, also an unknown one: to
// keep an aggregate waiting, and say so, is better than to dead-letter its events because of, say, a missing right.
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
}

// duplicateKeyCodes: a conditional upsert whose condition does not hold collides with the document that is there; so does
// a write that breaks a unique index.
var duplicateKeyCodes = map[int]bool{mongodb.DuplicateKey: true, mongodb.DuplicateKeyUpdate: true, mongodb.DuplicateKeyCapped: true}

// Classify judges an error of a projection or of the driver.
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
		return classifyWrites(bulk.WriteErrors, func(e mongo.BulkWriteError) mongo.WriteError { return e.WriteError })
	}
	if write, ok := errors.AsType[mongo.WriteException](err); ok {
		return classifyWrites(write.WriteErrors, func(e mongo.WriteError) mongo.WriteError { return e })
	}
	if server, ok := errors.AsType[mongo.CommandError](err); ok {
		return classifyWrite(mongo.WriteError{Code: int(server.Code), Raw: server.Raw})
	}
	return Transient
}

// classifyWrites takes the gravest class; without any write error, what failed is the write concern, which is transient.
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
	}
	return Transient
}

// Refused says that the server refused a command itself, for want of a right or because it does not know it.
func Refused(err error) bool {
	server, ok := errors.AsType[mongo.CommandError](err)
	return ok && (permanentCodes[int(server.Code)] || mongodb.HasCode(server, mongodb.Unauthorized, mongodb.AtlasError,
		mongodb.CommandNotFound, mongodb.IndexOptionsConflict, mongodb.IndexKeySpecsConflict, mongodb.CommandNotSupported))
}

// onlyID says whether a duplicate key is that of _id, which is where the guard is, or of some other unique index. Servers
// that do not say are taken to mean _id.
func onlyID(raw bson.Raw) bool {
	pattern, ok := raw.Lookup("keyPattern").DocumentOK()
	if !ok {
		return true
	}
	elements, err := pattern.Elements()
	return err == nil && len(elements) == 1 && elements[0].Key() == "_id"
}
