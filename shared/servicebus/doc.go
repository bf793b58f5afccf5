// Package servicebus is an AMQP connection to a Service Bus namespace and what all links on it share: the right to use an
// entity, AMQP sessions, and requests to an entity's management node.
//
// The Service Bus SDK does the same inside its clients, under mutexes that it holds while it waits for the network: whoever
// comes second waits as long as the first, whatever their context says (azservicebus v1.11.0, Namespace.negotiateClaimMu and
// clientMu, AMQPLinksImpl.mu). It also puts two tokens for each link that it opens, in ten round trips. Here every wait for another
// goroutine is on a channel, so that a context ends it, and a token is put once for each entity of a connection.
//
// Guaranteed:
//   - No method waits longer than its context, whatever the network does.
//   - A token is in force while the connection is used: it is put before an entity's first link is opened, and again long
//     before it ends.
//
// Not guaranteed: that a connection recovers. When something on it breaks, its user closes and replaces it.
package servicebus
