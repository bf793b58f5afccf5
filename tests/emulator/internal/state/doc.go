// Package state is a storage account as pure state: containers, block blobs, their ETags,
// conditional headers and leases. It has no sockets and no HTTP; package blob puts the REST
// protocol in front of it.
//
// Guaranteed: every operation is atomic (one mutex for the account); a write gives the blob an ETag
// that the account has never used before; a lease is in exactly the state that the lease tables of
// the REST reference name, with the error codes that the service was seen to return. Time is read
// with time.Now, on the monotonic clock, so a testing/synctest bubble moves leases by virtual time.
//
// Not kept: snapshots, versions, soft delete, tags, tiers, page and append blobs, container leases.
// A deleted container is gone at once; the real service answers ContainerBeingDeleted for a while.
//
// Clauses are cited as [lease], [conditional], [put-blob] and so on: the page of that operation in
// https://learn.microsoft.com/rest/api/storageservices/.
package state
