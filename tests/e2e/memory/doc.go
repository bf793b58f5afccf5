// Package memory compares the documents in memory of package projection/memory with those of a
// MongoDB: after every write both are the same.
package memory
