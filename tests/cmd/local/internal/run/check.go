package run

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/source"
	"github.com/sluice-cdc/sluice/tests/internal/books"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// check compares what is there, after the services have ended, and puts the report together.
// problem is why the run came to its end too early; nil when it did not.
func (r *runner) check(ctx context.Context, data *data, problem error) (report.Outcome, error) {
	compared, applied, checked, err := r.compare(ctx, data)
	if err != nil {
		return report.Outcome{}, err
	}
	var violations []history.Violation
	var gaps []string
	if !r.options.Following() {
		seen := r.witnessed()
		if r.elsewhere() {
			if seen.Committed, gaps, err = r.sourceGaps(ctx, data, seen.Committed); err != nil {
				return report.Outcome{}, err
			}
		}
		violations = history.Judge(seen)
	}
	counts := r.rec.Counts()
	outcome := report.Outcome{
		Report: report.Report{
			EventsInserted:      r.committed(),
			EventsPublished:     report.Unknown,
			EventsApplied:       applied,
			Aggregates:          compared.Aggregates,
			Lost:                compared.Lost,
			DuplicateEffects:    compared.Doubled,
			OutOfOrder:          history.Count(violations, history.ErrReordered),
			Mismatches:          compared.Mismatches,
			DuplicatesPublished: report.Unknown,
			Parked:              r.parked(ctx),
			DeadLettered:        report.Unknown,
			Failovers:           r.failovers.measured(),
			LatencyMs:           r.rec.Latency(),
			RSSMb:               r.memory.get(),
			ElapsedMs:           r.elapsed().Milliseconds(),
			Seed:                r.options.Seed,
		},
		Steady:      r.rec.SteadyLatency(),
		Right:       compared.Right,
		Unexpected:  compared.Unexpected,
		SourceGaps:  gaps,
		Checked:     checked,
		Followed:    r.options.Following(),
		Documents:   r.options.ProjectionURL != "",
		Differences: compared.Differences,
	}
	if took := counts.LastVisible.Sub(counts.FirstCommit).Seconds(); took > 0 {
		outcome.ThroughputEPS = float64(counts.Visible) / took
	}
	for _, v := range violations {
		outcome.Violations = append(outcome.Violations, v.Error())
	}
	if r.stack != nil {
		outcome.EventsPublished = counts.Published
		outcome.DuplicatesPublished, outcome.Repeated, outcome.Stale = counts.Duplicates, counts.Repeated, counts.Stale
		outcome.DeadLettered = int64(r.stack.ServiceBus.Stats(r.places.route.Out()).DeadLettered)
		outcome.DeadLetters = r.deadLetters()
	}
	if problem != nil {
		outcome.Failure = "The run was given up: " + problem.Error() + "."
	}
	if !outcome.OK() {
		outcome.Logs = r.complaints()
	}
	return outcome, nil
}

// witnessed returns the history, as these services were to make it, without the witnesses that
// there were not.
func (r *runner) witnessed() history.History {
	h := r.rec.History()
	h.SessionKey = r.options.SessionKey
	if r.stack == nil {
		h.Accepted = nil
	}
	if r.options.Projection != flags.Timeline {
		h.Observed = nil
	}
	return h
}

func (r *runner) parked(ctx context.Context) int64 {
	if r.options.Projection == flags.Timeline && r.readModel != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if n, err := r.parkedNow(ctx); err == nil {
			return n
		}
	}
	var n int64
	for _, s := range r.projectors {
		n = max(n, s.LastStatus().Parked) // each reports what is in the read model
	}
	return n
}

func (r *runner) compare(ctx context.Context, data *data) (c history.Comparison, applied int64, checked string, err error) {
	if r.options.Following() {
		return r.verdict.Comparison, r.applied(), r.compared(), nil
	}
	if r.options.ProjectionURL != "" {
		c, checked = r.compareProgram(ctx)
		return c, r.applied(), checked, nil
	}
	if r.options.Projection == flags.Mirror {
		c, applied, err = compareMirror(ctx, data)
		return c, applied, "every document of the mirror against its source, byte by byte", err
	}
	if r.options.Projection == flags.Orders {
		var kept books.Books
		if err := kept.Read(ctx, data.source); err != nil {
			return c, 0, "", err
		}
		c, applied, err = kept.Compare(ctx, data.readModel.Collection("orders"), data.readModel.Collection("customers"))
		return c, applied, "every order and every customer's totals, recomputed from the source", err
	}
	actual, err := witness.ReadTimeline(ctx, data.readModel.Collection(flags.Timeline))
	if err != nil {
		return c, 0, "", err
	}
	if r.options.Expected != nil {
		return history.Compare(r.options.Expected, actual), actual.Events(), "the timeline against --expect", nil
	}
	expected, err := workload.Timeline(ctx, data.source)
	if err != nil {
		return c, 0, "", err
	}
	return history.Compare(expected, actual), actual.Events(), "recomputed from the source", nil
}

// compareMirror holds every document of the mirror against its source.
func compareMirror(ctx context.Context, data *data) (c history.Comparison, applied int64, err error) {
	ids := map[string]bson.RawValue{}
	read := func(collection *mongo.Collection) (*history.Documents, error) {
		documents := &history.Documents{}
		return documents, workload.Each(ctx, collection, func(document bson.Raw) error {
			id := document.Lookup("_id")
			key := source.Text(id)
			ids[key] = bson.RawValue{Type: id.Type, Value: slices.Clone(id.Value)}
			aggregate, ok := envelope.Text(document.Lookup("aggregateId"))
			if !ok {
				aggregate = key
			}
			documents.Add(aggregate, key, sha256.Sum256(document))
			return nil
		})
	}
	copied := data.readModel.Collection(flags.Mirror)
	expected, err := read(data.source)
	if err != nil {
		return c, 0, err
	}
	actual, err := read(copied)
	if err != nil {
		return c, 0, err
	}
	explain := func(key string) string { return source.Explain(ctx, data.source, copied, ids[key]) }
	return history.CompareDocuments(expected, actual, explain), int64(actual.Len()), nil
}
