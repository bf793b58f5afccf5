// Package stack starts the embedded servers together: MongoDB, Service Bus and Blob storage, each on a free port of the
// loopback interface, for the local command and for end-to-end tests.
//
// Guaranteed: [New] has the addresses before anything is served; when [Stack.Run] returns, every listener and
// connection is closed and every goroutine has ended. Not provided: anything that outlives the process; data is in
// memory alone.
package stack
