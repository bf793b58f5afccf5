// Package servicebus is an embedded Azure Service Bus: a namespace that the unmodified Azure SDKs
// talk to over AMQP 1.0, on a TCP listener or on a bare connection.
//
// Guaranteed, and tested with the real SDK: the guarantees of package broker; a send is answered
// only after the broker has stored it; claims are required before a link to an entity opens; an
// operation that is not implemented is refused with an error that names it.
//
// A connection that breaks frees the sessions it held at once, as a clean close does; the service
// may take until the lock expires to notice. If the reference leaves something open, this is the
// choice: a released message does not count a failed delivery, and an empty session state clears
// it.
//
// Administration over HTTP, and AMQP and HTTP together behind TLS, are separate listeners. A signed
// token is checked; of a JWT only the stated expiry is used. When the claims of a link expire, the
// link is closed.
//
// Not provided: durability; transactions and link resumption, which are refused by name.
package servicebus
