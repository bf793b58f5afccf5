package projection

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Collection is a collection that a projection writes to, with the indexes its readers need beside that of _id.
type Collection struct {
	Name    string
	Indexes []Index
	// KeyedBy says which value of a document of the watched collection is the _id of the one document here that its insert
	// writes to: the value at a dotted path, or [ByAggregate]. `projector verify` then reads, for a sample and for a second
	// look, only what feeds the documents it compares. Empty: nobody knows, and it reads the whole source.
	KeyedBy string
}

// ByAggregate is the [Collection.KeyedBy] of documents whose _id is the event's Aggregate.
const ByAggregate = "$aggregate"

// Index is an index of a collection. It is made when a projector starts, under the name MongoDB derives from Keys; one that
// is no longer named here is left alone.
type Index struct {
	// Keys are the fields, in order, each with 1 or -1.
	Keys bson.D
	// Unique refuses a second document with the same keys: a permanent failure of the event that would make one. Prefer an
	// _id: events of different aggregates come in any order, and so a value may arrive at its new document before it
	// has left the old one. That of a [OneDocument] must leave stubs out, by Partial.
	Unique bool
	// Partial, unless nil, leaves out the documents that do not match this filter.
	Partial bson.D
}

// Stored is a projection that declares its collections. They and their indexes are created at the start, by any number of
// replicas at once. A projection that does not declare its collections has them created by the first write, without indexes.
// `projector verify` needs the declaration of any projection that is not a [OneDocument], to find documents that should not exist.
type Stored interface {
	Projection
	// Collections are all collections that the projection ever writes to. A write to any other one is refused as a permanent
	// error: it would go where verify does not look.
	Collections() []Collection
}

// Collections are the collections of a projection; ok is false for one that does not say.
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
