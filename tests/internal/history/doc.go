// Package history records what a run did, as far as it can be observed from outside the services,
// and judges it.
//
// Three kinds of records are made, each in its own order:
//
//   - [Commit]: an event was written to the source collection; the order is the commit order.
//   - [Acceptance]: the broker accepted a message; the order is the broker's.
//   - [Observation]: a document of the read model changed; the order is that of the read model's
//     own change stream.
//
// [Judge] is pure. It reads the records in their order, never sorts or drops any, and reports each
// broken promise by its sentinel: [ErrLost], [ErrDoubled], [ErrReordered], [ErrMisrouted],
// [ErrUncommitted], [ErrUnguarded]. [Compare] compares the final read model with the expected one,
// which comes from [Fold] or from a file and is computed without any code of the services.
//
// Not judged: the order between aggregates, and between the streams that feed one aggregate (no
// order of commits is promised there), and repeats that the broker or the guard dropped (they are
// allowed; their number is reported).
package history
