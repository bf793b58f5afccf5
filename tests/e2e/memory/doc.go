// Package memory holds what package projection does without the projector against a MongoDB, embedded or real:
// the documents of projection/memory, which are the same after every write, and projection.Wait.
package memory
