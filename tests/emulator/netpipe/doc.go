// Package netpipe is a network in memory: connections (Pipe), a listener to
// dial (Listen), and simulated latency for any listener (Delay).
//
// Guaranteed: bytes arrive whole and in order; deadlines, half close and close
// behave as with TCP (what was written before a close still arrives, then EOF);
// everything waits on channels and timers only, so that inside a testing/synctest
// bubble a blocked connection lets virtual time advance, which a socket does not.
//
// Not simulated: loss, reordering, limited bandwidth, resets. A close never
// blocks and throws nothing away that was written before it.
package netpipe
