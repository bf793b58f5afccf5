// Package live runs both services in real time, for the race detector: over TCP, against the
// embedded servers, with the real SDKs, all in one process, so that the detector sees services,
// SDKs, servers and harness together. The larger suites run in virtual time, where the detector is
// not sound.
//
// Services are killed, stopped and cut off from their servers at any message, while a scraper reads
// their status and metrics and an operator runs commands that only read. Package checker judges the
// outcome from outside.
//
// The fence is not judged, as in package chaos: the duration of a step depends on the machine. No
// test asserts a time.
package live
