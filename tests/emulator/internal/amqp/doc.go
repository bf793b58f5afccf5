// Package amqp is the server side of AMQP 1.0, as much of it as a message broker for the
// Azure SDKs needs: SASL, frames, connections, sessions and links, with flow control both ways.
//
// Guaranteed: frames of one link are written in the order the calls were made; a link never
// receives more transfers than its credit [AMQP-2.6.7] nor a session more than its window
// [AMQP-2.5.6]; nothing is written for a link after its detach nor on a channel after its end
// (a stray frame there kills a go-amqp connection); every declared length is checked against
// what was received before anything of that size is allocated; malformed input closes the
// connection with an error and never panics.
//
// Not provided: TLS, transactions, link resumption (a detach always closes), and durable
// terminus state. A request for one of them is refused with an error that names it.
//
// Clauses are cited as [AMQP-part.section] of the OASIS standard of 29 October 2012.
package amqp
