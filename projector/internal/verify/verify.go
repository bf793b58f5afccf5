// Package verify recomputes a read model from the source collection, by the projection's own code and in memory, and says
// where the read model differs.
//
// A sample, and the second comparison of a difference, read only the events that write to their documents. That works where each
// insert writes to at most one document of a collection, and a path of the inserted document gives its _id
// ([projection.Collection.KeyedBy]): ids of the read model then lead to the events, and random events lead to ids that the read model
// should have. The read model of any other projection is compared with the whole source.
//
// Guaranteed: memory is bounded by a number of documents, whatever the size of the collections: large ones are compared in several
// passes, each over a part of the documents. Nothing is written. A difference is compared again before it is reported, so that events
// on their way do not count. The report says how far the aggregates of a document are applied, which tells a late event from a wrong
// document.
//
// What cannot be known:
//   - changes of which the source keeps no trace. Each document of the source counts as one insert: right for event stores,
//     and for projections of the current documents, such as the mirror; not for one that counts updates or deletes;
//   - what the message of an event holds and its document does not: time, position, identity. Documents that depend on these are
//     counted and not compared;
//   - a document that changes between every two comparisons. It is reported as changing, and neither as right nor as wrong.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// ErrNotStored is a projection that does not say where its documents are.
var ErrNotStored = errors.New("the projection does not name its collections, so that nobody knows which documents are its own: " +
	"implement projection.Stored")

// Verifier compares one read model with its source.
type Verifier struct {
	// Program is what people type to run the projector's commands.
	Program    string
	Projection projection.Projection
	Source     Source
	ReadModel  *mongo.Database
	// Guards tells how far aggregates are applied.
	Guards func(ctx context.Context, aggregates ...string) (map[string]apply.Guard, error)
	// Parked tells which aggregates are parked.
	Parked func(ctx context.Context) ([]apply.Aggregate, error)
	// Sample, unless 0, is about how many documents to compare: a random part of them.
	Sample int64
	// Wait is how long a difference may take to disappear before it is reported.
	Wait time.Duration
	// PerPass is about how many documents are held in memory at once: what is more is compared in parts, each of which reads
	// both sides anew.
	PerPass int64
	// Kept is the most differences that are compared again and reported one by one; 0 means 1,000. The rest is counted.
	Kept int
}

// Report is what was found.
type Report struct {
	Projection string `json:"projection"`
	Source     string `json:"source"`
	Events     int64  `json:"events"`    // read of the source; for a sample those that feed it, counted once for each part of it
	Documents  int64  `json:"documents"` // compared
	Sampled    bool   `json:"sampled"`
	// Scanned says that the whole source was read.
	Scanned bool `json:"scanned"`
	// Differing is how many documents differ; Findings tells of the first ones.
	Differing int64     `json:"differing"`
	Findings  []Finding `json:"findings,omitempty"`
	// Changing is how many documents differed at every look and changed in between.
	Changing int64 `json:"changing"`
	// Unknown is how many documents depend on what the source does not tell.
	Unknown int64 `json:"unknown"`
	// Poison is how many events the projection says can never be applied; Refusal is what it says of the first one.
	Poison  int64  `json:"poison"`
	Refusal string `json:"refusal,omitempty"`

	program string
}

// OK says that documents were compared, and that each of them is right. Where there was none to compare, nothing is verified: the
// source may be another, or the projection may write elsewhere.
func (r Report) OK() bool { return r.Documents > 0 && r.Differing == 0 && r.Changing == 0 }

// Verify compares. Errors: [ErrNotStored], and what the databases say.
func (v *Verifier) Verify(ctx context.Context) (Report, error) {
	collections, ok := projection.Collections(v.Projection)
	if !ok {
		return Report{}, ErrNotStored
	}
	report := Report{program: v.Program, Projection: v.Projection.Name(), Source: v.Source.String(), Sampled: v.Sample > 0}
	found := newFindings(v.Kept)
	var err error
	if v.Sample > 0 && traceable(collections) {
		err = v.verifySample(ctx, collections, &report, found)
	} else {
		err = v.verifyAll(ctx, collections, &report, found)
	}
	if err == nil {
		err = v.recheck(ctx, collections, found)
	}
	report.Differing, report.Changing, report.Findings = found.differing, found.changing, found.list()
	return report, err
}

// verifySample compares a sample, and reads what feeds it.
func (v *Verifier) verifySample(ctx context.Context, collections []projection.Collection, report *Report, found *findings) error {
	drawn, err := v.draw(ctx, collections)
	if err != nil {
		return err
	}
	parked, err := v.parkedAggregates(ctx, collections)
	if err != nil {
		return err
	}
	for only := range slices.Chunk(drawn, atOnce) {
		p := v.focused(collections, only, parked)
		if err := p.run(ctx); err != nil {
			return err
		}
		report.Events += p.events
		report.Poison += p.poison
		report.countPass(p)
		found.record(p.found)
	}
	return nil
}

// countPass counts what a pass compared.
func (r *Report) countPass(p *pass) {
	r.Refusal = cmp.Or(r.Refusal, p.refusal)
	r.Documents += p.compared
	r.Unknown += int64(len(p.unknown))
}

// verifyAll compares in parts, each of which reads the whole source; of a sample, one part.
func (v *Verifier) verifyAll(ctx context.Context, collections []projection.Collection, report *Report, found *findings) error {
	report.Scanned = true
	total, err := v.count(ctx, collections)
	if err != nil {
		return err
	}
	perPass := max(v.PerPass, 1)
	if v.Sample > 0 {
		perPass = v.Sample
	}
	parts := uint64(max(1, (total+perPass-1)/perPass))
	first, last := uint64(0), parts
	if v.Sample > 0 {
		first = rand.Uint64N(parts)
		last = first + 1
	}
	for n := first; n < last; n++ {
		p := &pass{Verifier: v, collections: collections, wanted: func(key string) bool { return parts == 1 || part(key)%parts == n }}
		if err := p.run(ctx); err != nil {
			return err
		}
		report.Events, report.Poison = p.events, p.poison
		report.countPass(p)
		found.record(p.found)
	}
	return nil
}

func (v *Verifier) count(ctx context.Context, collections []projection.Collection) (total int64, err error) {
	for _, c := range collections {
		n, err := v.ReadModel.Collection(c.Name).EstimatedDocumentCount(ctx)
		if err != nil {
			return 0, fmt.Errorf("count %s: %w", c.Name, err)
		}
		total += n
	}
	return total, nil
}

// recheck compares what differed again, after a while and at the end of Wait: a difference whose events were on their way is gone
// by then.
func (v *Verifier) recheck(ctx context.Context, collections []projection.Collection, found *findings) error {
	for _, pause := range []time.Duration{v.Wait / 5, v.Wait - v.Wait/5} {
		if len(found.byKey) == 0 {
			return nil
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
		p, err := v.recheckOnce(ctx, collections, found)
		if err != nil {
			return err
		}
		if err := found.confirm(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// recheckOnce compares again what differed, and at what feeds it where that can be found.
func (v *Verifier) recheckOnce(ctx context.Context, collections []projection.Collection, found *findings) (*pass, error) {
	p := &pass{Verifier: v, collections: collections, wanted: func(key string) bool { _, differs := found.byKey[key]; return differs }}
	if traceable(collections) {
		parked, err := v.parkedAggregates(ctx, collections)
		if err != nil {
			return nil, err
		}
		p = v.focused(collections, found.targets(), parked)
	}
	p.traced = true
	return p, p.run(ctx)
}
