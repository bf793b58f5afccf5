// Package history records what a run did, where it can be seen from outside the services, and judges it.
//
// Three witnesses are recorded, each in its own order:
//
//   - [Commit]: an event was written to the source collection; the order is the commit order.
//   - [Acceptance]: the broker accepted a message; the order is the broker's.
//   - [Observation]: a document of the read model changed; the order is that of the read model's own change stream.
//
// [Judge] is pure. It walks the records as they came, never sorts them and never drops one, and names every broken
// promise by its sentinel: [ErrLost], [ErrDoubled], [ErrReordered], [ErrMisrouted], [ErrUncommitted], [ErrUnguarded]. [Compare] holds the final read
// model against the expected one, which [Fold] or a file gives, computed without any code of the services.
//
// Not judged: anything across aggregates, and across the streams that feed one (no order of commits is promised there), and repeats that the broker or the guard
// dropped (they are allowed; their number is reported).
package history
