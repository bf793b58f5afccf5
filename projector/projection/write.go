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

// DeleteOne removes a document, if it is there and meets every condition.
type DeleteOne struct {
	Collection string
	ID         any
	If         []Condition
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

// DeleteIf removes a document that meets every condition, and does nothing to another: a customer without orders, say. It sees
// the document as the writes before it left it. On a document that many aggregates feed it is not safe by itself: an order that
// comes before the deletion or after it leaves different documents.
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
