package apply

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Class is what to do about an error.
type Class uint8

// The classes.
const (
	// None is no error.
	None Class = iota
	// Transient may heal: try the same again, for as long as it takes.
	Transient
	// Guarded means that the guard did not match: read it and plan again.
	Guarded
	// Permanent is about the change itself: trying again cannot help.
	Permanent
)

// permanentCodes are the server's ways of refusing a write for what it is. Everything that is not here counts as
// transient, also what nobody has heard of: to hold an aggregate up and say so is better than to set its events aside
// because of, say, a missing right. [MongoDB src/mongo/base/error_codes.yml]
var permanentCodes = map[int]bool{
	2:     true, // BadValue
	9:     true, // FailedToParse
	14:    true, // TypeMismatch
	15:    true, // Overflow
	16:    true, // InvalidLength
	22:    true, // InvalidBSON
	28:    true, // PathNotViable
	40:    true, // ConflictingUpdateOperators
	52:    true, // DollarPrefixedFieldName
	53:    true, // InvalidIdField
	54:    true, // NotSingleValueField
	55:    true, // InvalidDBRef
	56:    true, // EmptyFieldName
	57:    true, // DottedFieldName
	66:    true, // ImmutableField
	73:    true, // InvalidNamespace
	121:   true, // DocumentValidationFailure
	10334: true, // BSONObjectTooLarge
	17280: true, // KeyTooLong
	17419: true, // the document would grow too large
	17420: true, // the same, in a transaction's oplog entry
}

// duplicateKeyCodes: a conditional upsert whose condition does not hold collides with the document that is there; so does
// a write that breaks a unique index.
var duplicateKeyCodes = map[int]bool{11000: true, 11001: true, 12582: true}

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

// classifyWrites takes the gravest class; without any write error, what failed is the write concern, which heals.
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
	switch {
	case !ok:
		return false
	case server.Code == 13, server.Code == 8000, server.Code == 59, server.Code == 85, server.Code == 86, server.Code == 115:
		// Unauthorized, Atlas's own, CommandNotFound, IndexOptionsConflict, IndexKeySpecsConflict, CommandNotSupported
		return true
	}
	return permanentCodes[int(server.Code)]
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
