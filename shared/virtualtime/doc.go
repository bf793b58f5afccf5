// Package virtualtime runs tests in virtual time: [Test] is [testing/synctest.Test] with a watchdog.
//
// Time in a bubble passes only while every goroutine of it waits for another one of it, or for time. One that waits for a
// mutex, a system call or a channel from outside stops it, and if what it waits for needs time to pass, it stops for ever:
// plain synctest says nothing, and go test ends the whole package at its -timeout. Here that test fails by its name, with all
// stacks of its bubble, when nothing in the bubble has moved for 30 s of real time; the other tests go on and are judged.
// A bubble that synctest finds deadlocked fails its test in the same way, where plain synctest ends the process.
//
// A bubble cannot be killed, so it is abandoned: its goroutines stay, its cleanups do not run, and what it has in
// [testing.T.TempDir] or has changed in the environment stays as it is. Should it wake up later, what it logs is dropped and
// its failures count for nothing, but it cannot end the process other than by a panic of its own.
//
// The watchdog looks from outside and puts nothing into the bubble. One watcher for the process compares the stacks of all
// goroutines ten times in the 30 s, while bubbles run. A bubble in which any goroutine runs, or could run if it had a
// processor, moves; so however slow a machine is, that alone fails no test. One that only waits for something outside, such
// as a program or a pipe that nobody reads, does not move.
//
// What it does not find: a goroutine that spins without end, and a bubble in which virtual time passes without end because
// something polls. Both move. go test ends them at its -timeout, and names the tests that were running.
//
// Under the race detector a test in virtual time is skipped, unless the runtime is up to both at once: [Require].
//
// The package is for tests alone, of all modules: it imports testing. make lint refuses it in what is not a test, and in what
// the services are built from.
package virtualtime
