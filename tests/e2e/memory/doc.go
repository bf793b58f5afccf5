// Package memory holds the documents in memory of package projection/memory against a MongoDB: after
// every write both have the same.
package memory
