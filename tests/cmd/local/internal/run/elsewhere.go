package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// elsewhere reports whether the source is in a MongoDB of the user: an election there may roll back
// what was inserted, and other programs may write to it.
func (r *runner) elsewhere() bool { return r.options.External || r.source != nil }

// beyondSource gives a run up that waits for events which the source itself does not hold. nil: it
// holds them, or cannot be asked.
func (r *runner) beyondSource(ctx context.Context, data *data, stopping bool) error {
	if !stopping || !r.loaded.Load() || !r.elsewhere() {
		return nil
	}
	counts := r.rec.Counts()
	held, err := data.source.CountDocuments(ctx, bson.D{})
	if err != nil || held >= counts.Committed || counts.Visible < held {
		return nil // the comparison asks again
	}
	return fmt.Errorf("%w: the source holds %d of the %d events that were inserted", errHopeless, held, counts.Committed)
}

// sourceGaps returns the events that were inserted and are not in the source, in words, and the
// others.
func (r *runner) sourceGaps(ctx context.Context, data *data, committed []history.Commit) (held []history.Commit, gaps []string, err error) {
	there := make(map[string]map[int64]bool)
	err = workload.Scan(ctx, data.source, func(s workload.Stored) {
		if there[s.AggregateID] == nil {
			there[s.AggregateID] = make(map[int64]bool)
		}
		there[s.AggregateID][s.Version] = true
	})
	if err != nil {
		return nil, nil, err
	}
	held, gaps = split(committed, there)
	return held, gaps, nil
}

// split separates the committed events that exist from those that do not, and describes the latter
// by aggregate, the largest gaps first.
func split(committed []history.Commit, there map[string]map[int64]bool) (held []history.Commit, gaps []string) {
	missing := make(map[string][]int64)
	var order []string
	for _, c := range committed {
		if there[c.Aggregate][c.Version] {
			held = append(held, c)
			continue
		}
		if missing[c.Aggregate] == nil {
			order = append(order, c.Aggregate)
		}
		missing[c.Aggregate] = append(missing[c.Aggregate], c.Version)
	}
	if len(order) == 0 {
		return held, nil
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(len(missing[b]), len(missing[a])) })
	gaps = append(gaps, fmt.Sprintf("%d of the %d events that were inserted, of %s", len(committed)-len(held), len(committed),
		commandline.Count(len(order), "aggregate")))
	for _, aggregate := range order {
		gaps = append(gaps, fmt.Sprintf("%s: %s", aggregate, versions(missing[aggregate])))
	}
	return held, gaps
}

// versions names some, with their number where they are many.
func versions(missing []int64) string {
	const most = 8
	if len(missing) > most {
		return fmt.Sprintf("%d versions, from %d to %d", len(missing), slices.Min(missing), slices.Max(missing))
	}
	return fmt.Sprintf("version %s", strings.Trim(fmt.Sprint(missing), "[]"))
}
