// Package wire is the network between one service process and its servers, as far as a test needs
// to control it: a [Proxy] forwards messages one by one, and a [Trap] stops one of them at a step
// of the path: a send before the broker has it, a reply before the service has it.
//
// Guaranteed: nothing is changed, doubled, or overtaken on its connection; a message that was held
// and released arrives even if its sender has died in the meantime, as a message in flight would;
// [Proxy.Run] joins what it started.
//
// Supported are AMQP 1.0 frames, MongoDB's OP_MSG and the requests of Blob storage, as the official
// clients send them: without TLS and without compression.
package wire
