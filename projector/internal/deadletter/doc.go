// Package deadletter is for operators of parked aggregates: it shows one, replays its events, or
// drops the event that could not be applied.
//
// Guaranteed:
//   - A replay applies the events of an aggregate that wait in the dead-letter queue, in the order
//     of their positions, each once, with the same guarded writes as the projector
//     ([apply.Applier.Replay]). The aggregate stays parked meanwhile, so that no later event
//     overtakes.
//   - It ends the parking only after every event that was set aside has been applied. This does not
//     depend on a lock: events are set aside only after the record has counted them, and the write
//     that ends the parking is conditional on the count. The replay holds every session in which
//     events were set aside, by the record, so that no counted event is still on its way to the
//     dead-letter queue.
//   - A message is removed from the dead-letter queue only after its effect is committed. A command
//     that was interrupted, at any point, can be run again: events that were applied are
//     recognised.
//   - Messages of other aggregates stay in their places.
//
// Not guaranteed: that the delivery counts of other dead letters stay as they are. A queue does not
// deliver a chosen message: to remove one, those before it are locked for a moment and then
// abandoned. A dead-letter queue does not move a message because of its delivery count.
package deadletter
