// Package broker is the state of an Azure Service Bus namespace, without sockets or encoding:
// queues, topics, subscriptions, sessions, locks and dead-letter queues.
//
// Guaranteed: a send is all or nothing; messages of an entity (of a session, if the entity requires
// sessions) are delivered in the order in which they were accepted, and a message that comes back
// is delivered before any later one; a session has at most one holder; a message is delivered to
// one receiver at a time; an expired lock counts as lost from that instant, whether or not it was
// noticed; accepting the next session costs the same however many wait, and sessions are granted in
// the order in which they became ready.
//
// Not provided: durability, transactions, subscription rules other than "everything",
// auto-forwarding, and order between sessions.
//
// Every method may be called from any goroutine. Callbacks run without a lock held, except
// observers, which run in the middle of a send so that they see the broker's order.
package broker
