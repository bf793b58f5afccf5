// Package live runs both services in real time, for the race detector: over TCP, against the embedded servers, with the SDKs as
// they are, all of it in one process, so that the detector sees services, SDKs, servers and harness together. The larger suites
// run in virtual time, where the detector is not sound.
//
// Services are killed, asked to stop and cut off from their servers at any message, while somebody reads
// their status and metrics and operators give commands that read. What comes of it is judged from outside by package checker.
//
// Not judged is the fence, as in package chaos: how long something takes here depends on the machine. No test asserts a time.
package live
