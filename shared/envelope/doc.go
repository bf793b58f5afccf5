// Package envelope is the message that carries one change from the producer to the projector: the only thing the two
// services share about data.
//
// Guaranteed:
//   - The MessageID depends on the stream and the resume token alone, so every publisher of the same change, at any
//     time and in any epoch, gives it the same identity, and the broker's duplicate detection can drop the repeat.
//   - SessionID and PartitionKey are equal and depend on the aggregate and the stream's [SessionKey] alone, so all changes
//     of an aggregate share one session and its order.
//   - Positions of one stream compare as the changes were committed, by plain string comparison.
//   - [Decode] refuses what it cannot read with an [*Error] that names the reason; it never guesses.
//
// Not guaranteed: that a message arrives once, or that positions of different streams compare to anything useful.
//
// Both revisions of an app run side by side during a rollout, so this version and the one before it must read each
// other's messages: fields are added, never renamed, and unknown ones are ignored. The golden files in testdata pin
// the encoded form.
package envelope
