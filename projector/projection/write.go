package projection

import "go.mongodb.org/mongo-driver/v2/bson"

// Write is one write to one document: [UpdateOne], [ReplaceOne] or [DeleteOne]. The set is closed, because the planner
// must know how to fold them.
type Write interface {
	// Target is the document written to.
	Target() (collection string, id any)
	isWrite()
}

// UpdateOne changes fields of a document.
type UpdateOne struct {
	Collection string
	ID         any
	// Upsert makes the document when there is none.
	Upsert bool
	Ops    []Op
}

// ReplaceOne puts a whole document in the place of what was there, or makes it.
type ReplaceOne struct {
	Collection string
	ID         any
	// Document's _id, if it has one, must be ID.
	Document bson.Raw
}

// DeleteOne removes a document, if it is there.
type DeleteOne struct {
	Collection string
	ID         any
}

// Update changes fields of a document, which is made when there is none.
func Update(collection string, id any, ops ...Op) Write {
	return UpdateOne{Collection: collection, ID: id, Upsert: true, Ops: ops}
}

// UpdateExisting changes fields of a document and does nothing when there is none.
func UpdateExisting(collection string, id any, ops ...Op) Write {
	return UpdateOne{Collection: collection, ID: id, Ops: ops}
}

// Replace puts a whole document in place.
func Replace(collection string, id any, document bson.Raw) Write {
	return ReplaceOne{Collection: collection, ID: id, Document: document}
}

// Delete removes a document.
func Delete(collection string, id any) Write {
	return DeleteOne{Collection: collection, ID: id}
}

func (UpdateOne) isWrite()  {}
func (ReplaceOne) isWrite() {}
func (DeleteOne) isWrite()  {}

// Target implements [Write].
func (w UpdateOne) Target() (string, any) { return w.Collection, w.ID }

// Target implements [Write].
func (w ReplaceOne) Target() (string, any) { return w.Collection, w.ID }

// Target implements [Write].
func (w DeleteOne) Target() (string, any) { return w.Collection, w.ID }

// OpKind is what an [Op] does, by the name of MongoDB's update operator.
type OpKind string

// The kinds.
const (
	OpSet         OpKind = "$set"
	OpSetOnInsert OpKind = "$setOnInsert"
	OpUnset       OpKind = "$unset"
	OpInc         OpKind = "$inc"
	OpMin         OpKind = "$min"
	OpMax         OpKind = "$max"
	OpPush        OpKind = "$push"
)

// Op is one operator on one field. Field is a path with dots; a key that comes from data must be escaped with
// [EscapeKey] first.
type Op struct {
	Kind  OpKind
	Field string
	Value any
}

// Set gives the field a value, whatever it had.
func Set(field string, value any) Op { return Op{OpSet, field, value} }

// SetOnInsert gives the field a value when this very update makes the document.
func SetOnInsert(field string, value any) Op { return Op{OpSetOnInsert, field, value} }

// Unset removes the field.
func Unset(field string) Op { return Op{OpUnset, field, ""} }

// Inc adds to a whole number; a missing field counts as 0.
func Inc(field string, by int64) Op { return Op{OpInc, field, by} }

// Min keeps the smaller of the field and the value, by BSON's comparison; a missing field takes the value.
func Min(field string, value any) Op { return Op{OpMin, field, value} }

// Max keeps the larger of the field and the value.
func Max(field string, value any) Op { return Op{OpMax, field, value} }

// Truncate keeps the first size elements of an array.
func Truncate(field string, size int64) Op {
	return Op{OpPush, field, bson.D{{Key: "$each", Value: bson.A{}}, {Key: "$slice", Value: size}}}
}
