package projection

import "go.mongodb.org/mongo-driver/v2/bson"

// Write is one write to one document: [UpdateOne], [ReplaceOne] or [DeleteOne]. There are no
// others, because the projector must know how to fold several into one.
//
// An id is a value of any type that an _id can have, and never a query: an array, a regular
// expression and a document with a field that begins with a dollar are refused, as MongoDB would
// refuse to store them.
type Write interface {
	// Target is the document written to.
	Target() (collection string, id any)
	isWrite()
}

// UpdateOne changes fields of a document.
type UpdateOne struct {
	Collection string
	ID         any
	// Upsert creates the document if it does not exist.
	Upsert bool
	Ops    []Op
	// InOrder: new fields are added in the order in which the updates make them, as in a copy that
	// is to be equal byte for byte. An update is then not folded with one before it if MongoDB
	// would sort the new fields of both together.
	InOrder bool
}

// ReplaceOne writes a whole document, in place of the one that is there or as a new one.
type ReplaceOne struct {
	Collection string
	ID         any
	// Document may have an _id, which must then be ID.
	Document bson.Raw
}

// DeleteOne removes a document if there is one and it meets every condition.
type DeleteOne struct {
	Collection string
	ID         any
	If         []Condition
}

// Update changes fields of a document, and creates it if it does not exist. It takes any number of
// operators.
func Update(collection string, id any, ops ...Op) Write {
	return UpdateOne{Collection: collection, ID: id, Upsert: true, Ops: ops}
}

// UpdateExisting changes fields of a document, and does nothing if it does not exist.
func UpdateExisting(collection string, id any, ops ...Op) Write {
	return UpdateOne{Collection: collection, ID: id, Ops: ops}
}

// Replace writes a whole document.
func Replace(collection string, id any, document bson.Raw) Write {
	return ReplaceOne{Collection: collection, ID: id, Document: document}
}

// Delete removes a document.
func Delete(collection string, id any) Write {
	return DeleteOne{Collection: collection, ID: id}
}

// DeleteIf removes a document if it meets every condition: a customer without orders, say. It sees
// the document as the writes before it left it. Be careful with documents that many aggregates
// write to: an order that arrives before the deletion leaves another document than one that arrives
// after it.
func DeleteIf(collection string, id any, first Condition, more ...Condition) Write {
	return DeleteOne{Collection: collection, ID: id, If: append([]Condition{first}, more...)}
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
