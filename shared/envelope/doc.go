// Package envelope defines the message that carries one change from the producer to the projector.
// It is the only data that the two services share.
//
// Guaranteed:
//   - The MessageID depends only on the stream, the resume token and the generation (see
//     [InGeneration]), so every publisher gives a change the same MessageID, at any time and in any
//     epoch, and the broker's duplicate detection can drop the repeat.
//   - SessionID and PartitionKey are equal, and depend only on the aggregate and the stream's
//     [SessionKey], so all changes of an aggregate share one session and its order.
//   - Compared as strings, the positions of one stream are in the order in which the changes were
//     committed.
//   - [Decode] refuses what it cannot read, with an [*Error] that names the reason. It never
//     guesses.
//
// Not guaranteed: that a message arrives only once, or that positions of different streams can be
// compared.
//
// During a rollout, two versions run side by side. So this version and the one before it must read
// each other's messages: fields are added, never renamed, and unknown fields are ignored. The
// golden files in testdata fix the encoded form.
package envelope
