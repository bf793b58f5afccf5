// Package stack starts the embedded servers together, as package emulator does, optionally with
// Azurite as the blob store. The local command and the end-to-end tests use it.
//
// Guaranteed: what package emulator guarantees; Azurite's process has ended when [Stack.Run]
// returns.
package stack
