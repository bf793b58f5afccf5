// Package build builds a read model from the documents that the source holds, beside the stream
// that goes on: a projection's first read model of a database that is already full, or a new
// version of it.
//
// The source is read in ranges of whole aggregates, each as of one cluster time T of its own. An
// aggregate's documents are folded by the projection's own code and written together with a guard
// at T's boundary ([envelope.Boundary]). So the events that wait in the subscription, or are still
// to come, find a guard that recognises those up to T as duplicates and applies later ones.
//
// Guaranteed: each aggregate is written at once and once, whatever ends the build at whichever
// point; a build that is run again goes on where it stopped, and several at once disturb each other
// as little as they help. A range that cannot be read at one T any more is read again, whole, at a
// later one. Memory is bounded by a range, and by one aggregate's documents in the read model.
//
// Refused, each with its reason: whatever makes the documents of the source say less than its
// changes did. See [Builder.Run].
//
// Not guaranteed: anything if a projector consumes the subscription before the build has ended. A
// projector does not begin before, and the build ends with [apply.ErrForeignGuard] if one did.
//
// The package also creates the missing collections and indexes of a projection, and manages the
// views by which readers read it. Any number of processes may create collections and indexes
// concurrently, and repeatedly; existing ones stay as they are. None is ever dropped or changed: an
// existing index with other options is an error that names the remedy. A view changes from one
// version's collection to another's in one command of MongoDB. A cursor stays with the collection
// that it was opened on, so each read sees one version. Not guaranteed: that the views of a
// projection with several collections change together.
//
// A [Verifier] compares a read model with the documents that it comes from.
package build
