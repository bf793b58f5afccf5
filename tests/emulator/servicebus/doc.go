// Package servicebus is an embedded Azure Service Bus: a namespace that the unmodified Azure
// SDKs talk to over AMQP 1.0, on a TCP listener or on a bare connection.
//
// Guaranteed, and tested with the real SDK: what package broker guarantees; a send is answered
// only after the broker has stored it; claims are needed before a link to an entity opens; an
// operation that is not implemented is refused with an error that names it.
//
// A connection that breaks frees the sessions it held at once, as a clean close does; the
// service may take until the lock runs out to notice. What the reference leaves open is decided
// so: released messages count no failed delivery, and an empty session state clears it.
//
// Administration over HTTP, and AMQP and HTTP together behind TLS, are separate listeners.
// A signed token is checked; a JWT is only taken at its word for how long it is valid. When
// the claims of a link expire, the link is closed.
//
// Not provided: durability; transactions and link resumption, which are refused by name.
package servicebus
