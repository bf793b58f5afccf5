// Package chaos runs the services as processes, and kills (SIGKILL) or stops (SIGSTOP) the leader,
// the standby that takes over, and projectors, at every step of the path. It judges the outcome
// from outside.
//
// The services are the real programs; Blob storage is Azurite; MongoDB and Service Bus are the
// embedded servers, over TCP. Every service has a network of its own (internal/wire), which holds
// the message of the step. So a process is hit while exactly this message is in flight, and what it
// sent may arrive long after its death, or never.
//
// Other rounds leave the processes alone and break their networks: each service is in a network
// namespace, at one end of a cable that is cut, slow, or loses and reorders packets, without an
// error to either side (internal/cable).
//
// Packages history and checker judge the promises G1 to G4: no event lost, no effect duplicated, no
// event reordered, and an epoch that grows with every term. The fence is judged only in rounds in
// which networks fail. A frozen process may wake in the middle of a send and finish it; then the
// read model shows whether that did harm.
package chaos
