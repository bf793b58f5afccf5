// Package network is the simulation's network: parties reach servers over links that can be cut,
// held and cut off for ever, in memory and in virtual time.
//
// A [Link] is one party's connection to one server of a byte stream, a [BlobLink] one party's
// connection to Blob storage. While a direction is held, what is sent in it waits, as in a network
// that loses packets and will repeat them; it arrives when the link heals, in order, even if the
// party that sent it has died in the meantime.
//
// Guaranteed: no byte is lost, doubled or overtaken on a connection before the connection's end;
// nothing here ever blocks a writer, and no goroutine is started, so that faults cannot keep a
// bubble of virtual time from ending.
package network
