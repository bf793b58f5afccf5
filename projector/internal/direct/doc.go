// Package direct accepts sessions over AMQP and receives, settles and renews on their links, where the SDK would open five
// more links for each session, in some fifteen round trips: here an accept is one, with the connection and its tokens shared
// (see the package shared/servicebus).
//
// Guaranteed:
//   - A session's messages are received in the order in which the broker sends them. What has arrived and was not received is
//     released with the session, like what was received and not settled.
//   - No method waits longer than its context.
//   - Several goroutines may settle at once while another one renews the lock. One at a time receives.
//
// Not guaranteed: that the lock is held. The broker says so when it is lost, by closing the link, if the network lets it.
package direct
