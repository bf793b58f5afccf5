// Package stack starts the embedded servers together, as package emulator does, with Azurite as the blob store where that
// is asked for: for the local command and for end-to-end tests.
//
// Guaranteed: what package emulator guarantees; Azurite's process has ended when [Stack.Run] returns.
package stack
