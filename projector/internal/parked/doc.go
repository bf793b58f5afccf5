// Package parked is what people do about parked aggregates: look at one, replay its events, or go on without the one that
// could not be applied.
//
// Guaranteed:
//   - A replay applies the events of an aggregate that wait in the dead-letter queue in the order of their positions, each
//     once, by the same guarded writes as the projector ([apply.Applier.Replay]). While it does so the aggregate stays parked:
//     nothing overtakes.
//   - It ends the parking only where every event that was set aside has been applied. That rests on no lock: events are set
//     aside only after the record has counted them, and the parking ends in a write that is conditional on the count. The
//     session is held so that the broker, too, has nothing under way that was counted before.
//   - A message is removed from the dead-letter queue only after its effect is committed. Interrupted at any point, the same
//     command can be given again: what was applied is recognised.
//   - Messages of other aggregates stay where they are and keep their place.
//
// Not guaranteed: that the delivery counts of other dead letters stay as they are. A queue cannot be asked for a certain message: to
// remove one, those before it are locked for a moment and then abandoned. A dead-letter queue moves no message because of its count.
package parked
