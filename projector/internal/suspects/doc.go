// Package suspects finds the events whose projection ends the process of its projector: a recursion
// without end, which Go cannot recover from, or memory that grows until the process is killed.
//
// Each projector registers its process in the collection <projection>_processes of the read model,
// shows that it runs, and removes its record when it stops. A process that was not removed and no
// longer runs has ended otherwise. Once one has, projectors record the events that they are about
// to give to the projection, and remove that record when the projection has returned. What such an
// ended process had in hand is suspect, and is given to the projection alone. An event that was
// alone in hand when a process ended, twice, is condemned: it is not given to the projection again,
// and its aggregate is to be parked.
//
// Guaranteed: while no process has ended without stopping in the last quarter of an hour, nothing
// is recorded but that the process runs. An event is condemned only if two processes have ended
// without stopping while the projection had it and no other event, or had kept it for long. A stop,
// a lost lock or a redelivery leaves no record.
//
// Not guaranteed: how many processes end before an event is condemned. It is about four for each
// replica, since each may meet the event before another one's end is known.
package suspects
