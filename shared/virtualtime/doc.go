// Package virtualtime runs tests in virtual time, with [testing/synctest], and decides in which
// runs they are skipped.
//
// Time in a bubble passes only while each of its goroutines waits for another of them, or for time.
// A goroutine that waits for a mutex, a system call or a channel from outside stops the time, and
// if what it waits for needs time to pass, it stops it for ever. [Test] ends the process then, with
// the name of the test and the stacks of all goroutines.
//
// Under the race detector a test in virtual time is skipped, unless the runtime supports both at
// once: see [Require].
//
// The package is only for tests, of all modules: it imports testing. make lint refuses it in code
// that is not a test, and in the packages that the services are built from.
package virtualtime
