// Package chaos runs the services as processes and takes them away: SIGKILL and SIGSTOP of the leader, of the standby that
// takes over, and of projectors, at every step of the path. It checks from outside what came of it.
//
// The services are the real programs, Blob storage is Azurite, MongoDB and Service Bus are the embedded ones, over TCP.
// Every service has a network of its own (internal/wire), which holds the message of the step; so a process is hit while
// just this message is on its way, and what it had sent may arrive long after its death, or never.
//
// It also takes away their networks while they live: each service in a network namespace, on a cable that is cut without a
// word, slow, or loses and reorders packets (internal/cable).
//
// Judged are the promises G1 to G4 by packages history and checker: nothing lost, no effect doubled, nothing reordered,
// epochs growing with every term. The fence is judged where only networks fail: a frozen process may wake in the middle of a
// send and finish it, as package leader says; what that does is judged in the read model.
package chaos
