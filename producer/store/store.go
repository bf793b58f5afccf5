// Package store defines what a checkpoint store offers: a few operations on named bytes. The
// producer keeps a stream's record, its lease, its high-water mark, copies, failures and requests
// on top of them, in the same way for every store. A program passes a store of its own as
// producer.Options.Store; package storetest tests it.
//
// A store must guarantee:
//   - A [Store.Put] whose tag is not that of the object at that moment changes nothing. Puts and
//     creates of one name take effect one after the other.
//   - A tag is random. It is new for every write, changes by writes alone, and never returns, not
//     even if the object is deleted and created again, or restored from a backup. A counter is not
//     a tag: after a rollback it returns.
//   - An operation that succeeded is durable: no failure of a part of the store undoes it. If a
//     store cannot promise that, its documentation must state it first.
//   - An error other than those of this package leaves it open whether a write took effect. A write
//     that may be undone, such as one without a majority, is such an error, and not a success.
//   - No object expires.
//
// A store must not repeat a request on its own: the election repeats requests, and a repeated put
// whose first response was lost would be refused.
package store

import (
	"context"
	"crypto/rand"
	"errors"
)

// Tag identifies one write of an object.
type Tag string

// NewTag returns a random tag.
func NewTag() Tag { return Tag(rand.Text()) }

// The errors of a store that have a meaning for its callers. A store returns errors that wrap them.
var (
	// ErrNotFound: the object does not exist.
	ErrNotFound = errors.New("not found in the checkpoint store")
	// ErrChanged: the object has another tag than expected, or exists although it must not.
	ErrChanged = errors.New("changed by another client")
	// ErrTooLarge: the store holds no object of this size. Nothing was written.
	ErrTooLarge = errors.New("larger than the checkpoint store permits")
)

// Object is the content of an object, with the tag of the write that it is from.
type Object struct {
	Data []byte
	Tag  Tag
}

// Checker is implemented by a store that can examine the service behind it. Check returns an error
// that names each property of the service because of which the store cannot keep its promises, with
// its remedy. The command doctor calls it.
type Checker interface {
	Check(ctx context.Context) error
}

// Store holds named bytes. Names consist of any characters except a newline and a backslash, and
// have at most 320 bytes. All methods are safe for concurrent use, and return when ctx ends.
type Store interface {
	// Get returns an object as it is after every write that has succeeded. It never returns a write
	// that can still be undone. Errors: [ErrNotFound].
	Get(ctx context.Context, name string) (Object, error)
	// Put replaces the object that has this tag. Errors: [ErrChanged], [ErrNotFound],
	// [ErrTooLarge]; after any other it is unknown whether the object was replaced.
	Put(ctx context.Context, name string, data []byte, tag Tag) (Tag, error)
	// Create creates an object. Errors: [ErrChanged] if it exists, [ErrTooLarge]; after any other
	// it is unknown whether it was created.
	Create(ctx context.Context, name string, data []byte) (Tag, error)
	// List returns the names that begin with a prefix, in ascending order of their bytes.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete deletes an object. Errors: [ErrNotFound].
	Delete(ctx context.Context, name string) error
}
