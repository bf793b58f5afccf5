package apply

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// applyTogether writes the effects and the records of all groups in one transaction: a few round
// trips for a batch, and one update of a document that all of them write to, instead of as many of
// each as there are groups.
//
// The outcome of one group does not decide another. The transaction commits only if the guard of
// each group holds and no write is refused. Otherwise the groups are tried in halves, down to a
// single one, which is written and judged on its own. If guards do not match, all are read before
// that, unless they were: usually they have something in common, redelivered messages.
func (a *Applier) applyTogether(ctx context.Context, groups []*group, read bool) error {
	switch len(groups) {
	case 0:
		return nil
	case 1:
		return a.applyRecorded(ctx, groups[0])
	}
	err := a.commitTogether(ctx, groups)
	switch Classify(err) {
	case None, Transient:
		return err
	case Guarded:
		if read {
			break
		}
		if _, err := a.rebase(ctx, groups); err != nil {
			return err
		}
		groups = slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return len(g.events) == 0 })
		return a.applyTogether(ctx, groups, true)
	case Unknown, TooLarge, Permanent:
	}
	middle := len(groups) / 2
	if err := a.applyTogether(ctx, groups[:middle], read); err != nil {
		return err
	}
	return a.applyTogether(ctx, groups[middle:], read)
}

// commitTogether writes all events of all groups, or nothing. After an error nothing is decided,
// and as after every transaction the effects may nevertheless be committed: the guards decide.
func (a *Applier) commitTogether(ctx context.Context, groups []*group) error {
	records := make([]mongo.WriteModel, len(groups))
	var writes []projection.Write
	for i, g := range groups {
		records[i] = a.recordOf(g, len(g.events))
		writes = append(writes, g.writes(len(g.events))...)
	}
	writes, err := compact(writes)
	if err != nil {
		return err
	}
	err = a.transact(ctx, func(ctx context.Context) error {
		if err := a.writeRecords(ctx, records...); err != nil {
			return err
		}
		return a.effect(ctx, writes)
	})
	if err != nil {
		return err
	}
	for _, g := range groups {
		g.committed(len(g.events), false)
	}
	return nil
}
