// Package servicebus is an AMQP connection to a Service Bus namespace, with what all links on it
// share: the right to use an entity, AMQP sessions, and requests to an entity's management node.
//
// The Service Bus SDK does the same inside its clients, but holds mutexes while it waits for the
// network: a second caller waits as long as the first, even if its context has ended (azservicebus
// v1.11.0, Namespace.negotiateClaimMu and clientMu, AMQPLinksImpl.mu). It also sends two tokens for
// each link that it opens, in ten round trips. Here, every wait for another goroutine is on a
// channel, so that a context can end it, and a token is sent once for each entity of a connection.
//
// Guaranteed:
//   - No method waits longer than its context, whatever the network does.
//   - A token is valid while the connection is used: it is sent before an entity's first link is
//     opened, and renewed long before it expires.
//
// Not guaranteed: that a connection recovers. When something on it breaks, its user closes and
// replaces it.
package servicebus
