// Package apply turns a batch of changes into guarded writes of a read model.
//
// Guaranteed, per aggregate: the effect of every change is committed at most once and in the order given, whoever else
// applies the same changes at the same time, because every effect is written together with a guard, the position of
// the last change applied, and only where the guard is still below the first of the batch. A change at or below the
// guard is recognised as a duplicate and skipped. A change reported as applied or as a duplicate is committed with write
// concern majority.
//
// Guaranteed too: once an aggregate is parked ([Record]), no change of it takes effect until it is unparked, because the
// record lies in the guard and the same condition that guards positions refuses it. A change reported as poison or as
// parked is reported only after the record that says so is committed with write concern majority.
//
// Where the guard lives is the projection's choice, made for good: inside the one document per aggregate
// ([projection.OneDocument]: a whole batch is one conditional update), or in a record of its own, written in one
// transaction with the effects: that of a whole batch, or, where not all of it can be committed, of each aggregate by itself.
//
// Where several streams feed one aggregate, all of this holds for each of them by itself: each has its own guard (guard_streams.go), and a
// parking stops all of them.
//
// Not guaranteed: order between aggregates, and between two streams.
//
// Planning (plan*.go) and the judgement of errors (errors.go) are pure.
package apply
