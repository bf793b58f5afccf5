// Package apply turns a batch of changes into guarded writes of a read model.
//
// Guaranteed, per aggregate: the effect of every change is committed at most once and in the order
// given, even if other processes apply the same changes at the same time, because every effect is
// written together with a guard, the position of the last change applied, and only if the guard is
// still below the first change of the batch. A change at or below the guard is recognised as a
// duplicate and skipped. A change reported as applied or as a duplicate is committed with write
// concern majority.
//
// Guaranteed too: once an aggregate is parked ([Record]), no change of it takes effect until it is
// unparked, because the record is part of the guard, and the condition that guards positions
// refuses it. A change is reported as poison or as parked only after the record of it is committed
// with write concern majority.
//
// The projection decides permanently where the guard is: inside the one document per aggregate
// ([projection.OneDocument]: a whole batch is one conditional update), or in a record of its own,
// written in one transaction with the effects: that of a whole batch, or, if not all of it can be
// committed, one per aggregate.
//
// If several streams feed one aggregate, all of this holds for each of them separately: each has
// its own guard (guard_streams.go), and a parking stops all of them.
//
// Not guaranteed: order between aggregates, and between two streams.
//
// Planning (plan*.go) and the classification of errors (errors.go) are pure.
package apply
