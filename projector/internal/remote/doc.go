// Package remote runs a projection that is a program of its own, behind HTTP. The program is
// called with events and answers with writes; docs/projection.openapi.yaml describes both calls.
//
// Guaranteed: an answer is used only if it has the shape of the protocol and was given under the
// declaration that the projector has read. An event that the program cannot handle is blamed only
// if the program handles other events meanwhile; otherwise nothing is decided, and the projector
// waits. A call sends the events of one session, is bounded in size and time, and ends with its
// context. The program gets nothing that differs between two deliveries of an event.
//
// Not guaranteed: that an event is sent once; that the program is deterministic (doctor and verify
// show it if it is not).
//
// The data's way: Client.Ask (ask.go) → appendEvent (event.go) → post (call.go) → readAnswer
// (answer.go) → readWrite (write.go) → readValue (value.go). Blame.go decides which event is to
// blame for a failed call.
package remote
