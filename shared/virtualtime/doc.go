// Package virtualtime runs tests in virtual time: [Test] is [testing/synctest.Test] with a
// watchdog.
//
// Time in a bubble passes only while each of its goroutines waits for another of them, or for time.
// A goroutine that waits for a mutex, a system call or a channel from outside stops the time, and
// if what it waits for needs time to pass, it stops it for ever. With plain synctest, nothing is
// reported, and go test ends the whole package at its -timeout. Here, the test fails by its name,
// with all stacks of its bubble, when nothing in the bubble has moved for 30 s of real time; the
// other tests go on. A bubble that synctest finds deadlocked fails its test in the same way, while
// plain synctest ends the process.
//
// A bubble cannot be killed, so it is abandoned: its goroutines stay, its cleanups do not run, and
// its files in [testing.T.TempDir] and its changes to the environment stay. If it wakes up later,
// its log is dropped and its failures do not count; only a panic of its own can end the process.
//
// The watchdog is outside of the bubble and adds nothing to it. One watcher for the process
// compares the stacks of all goroutines ten times in the 30 s, while bubbles run. A bubble moves if
// any of its goroutines runs, or would run if it had a processor, so a slow machine alone fails no
// test. A bubble that only waits for something outside, such as a program or a pipe without a
// reader, does not move.
//
// The watchdog does not find a goroutine that spins without end, nor a bubble in which virtual time
// passes without end because something polls: both move. go test ends them at its -timeout, and
// names the tests that were running.
//
// Under the race detector a test in virtual time is skipped, unless the runtime supports both at
// once: see [Require].
//
// The package is only for tests, of all modules: it imports testing. make lint refuses it in code
// that is not a test, and in the packages that the services are built from.
package virtualtime
