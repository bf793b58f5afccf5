package projection

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Collection is a collection that a projection writes to, with the indexes that its readers need
// besides the one on _id.
type Collection struct {
	Name    string
	Indexes []Index
	// KeyedBy is the path in the source document (with dots) whose value is the _id of the one
	// document here that the insert writes to; or [ByAggregate]. `projector verify` then reads only
	// the events of the documents that it compares, for a sample and when it compares a difference
	// again. If KeyedBy is empty, it reads the whole source.
	KeyedBy string
}

// ByAggregate is the [Collection.KeyedBy] of documents whose _id is the event's Aggregate.
const ByAggregate = "$aggregate"

// Index is an index of a collection. It is created when a projector starts, with the name that
// MongoDB derives from Keys. An index that is no longer declared is not dropped.
type Index struct {
	// Keys are the fields, in order, each with 1 or -1.
	Keys bson.D
	// Unique refuses a second document with the same keys, which is a permanent failure of the
	// event. Prefer an _id: events of different aggregates come in any order, so a value may arrive
	// at its new document before it has left the old one. A unique index of a [OneDocument] must
	// leave stubs out, by Partial.
	Unique bool
	// Partial, unless nil, leaves out the documents that do not match the filter.
	Partial bson.D
}

// Stored is a projection that declares its collections. They and their indexes are created at the
// start, by any number of replicas at once. A projection that does not declare its collections has
// them created by the first write, without indexes. `projector verify` needs the declaration of any
// projection that is not a [OneDocument], to find documents that should not exist.
type Stored interface {
	Projection
	// Collections are all collections that the projection ever writes to. A write to any other one
	// is refused as a permanent error: verify would not check it.
	Collections() []Collection
}

// Collections returns the collections of a projection. ok is false if it declares none: it is
// neither [Stored] nor [OneDocument].
func Collections(p Projection) (all []Collection, ok bool) {
	one, isOne := p.(OneDocument)
	stored, isStored := p.(Stored)
	switch {
	case isStored:
		all = slices.Clone(stored.Collections())
	case isOne:
		all = []Collection{{Name: one.Collection()}}
	}
	for i := range all {
		if isOne && all[i].Name == one.Collection() {
			all[i].KeyedBy = ByAggregate
		}
	}
	return all, isOne || isStored
}
