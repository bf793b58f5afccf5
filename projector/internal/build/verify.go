package build

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
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// Verifier recomputes a read model in memory, from the source collection and with the projection's
// own code, and reports where the read model differs.
//
// A sample reads only the events that write to its documents, and so does the second comparison of
// a difference. This needs a projection whose inserts each write to at most one document of a
// collection, and whose [projection.Collection.KeyedBy] is the path to that document's _id: an _id
// of the read model then leads to its events, and a random event leads to an _id that the read
// model should have. For any other projection, the whole source is read.
//
// Guaranteed: memory is bounded by a number of documents, whatever the size of the collections:
// large ones are compared in several passes, each over a part of the documents. Nothing is written.
// A difference is compared again before it is reported, so that events on their way do not count.
// The report shows how far the aggregates of a document are applied, which distinguishes a late
// event from a wrong document.
//
// What it cannot know:
//   - changes that leave no trace in the source. Each document of the source counts as one insert.
//     This is right for event stores and for projections of the current documents, such as the
//     mirror; not for a projection that counts updates or deletes;
//   - what is in an event's message and not in its document: time, position, message id. Documents
//     that depend on these are counted, not compared;
//   - whether a document is right that changes between any two comparisons. It is reported as
//     changing.
type Verifier struct {
	// Program is the name with which the projector's commands are run.
	Program    string
	Projection projection.Projection
	Source     Source
	ReadModel  *mongo.Database
	// Guards reads how far aggregates are applied.
	Guards func(ctx context.Context, aggregates ...string) (map[string]apply.Guard, error)
	// Parked lists the parked aggregates.
	Parked func(ctx context.Context) ([]apply.Aggregate, error)
	// Sample is about how many documents to compare, chosen at random; 0 means all.
	Sample int64
	// Wait is how long a difference may take to disappear before it is reported.
	Wait time.Duration
	// PerPass is about how many documents are held in memory at once. More are compared in parts,
	// each of which reads both collections.
	PerPass int64
	// Progress is called with how many documents have been read of about how many (0: unknown).
	Progress func(what string, done, total int64)

	read, toRead int64 // documents of both sides, for Progress
}

// Verification is the result of a verification.
type Verification struct {
	Projection string `json:"projection"`
	Source     string `json:"source"`
	Events     int64  `json:"events"`    // read of the source; for a sample those that feed it, counted once for each part of it
	Documents  int64  `json:"documents"` // compared
	Sampled    bool   `json:"sampled"`
	// Scanned is true if the whole source was read.
	Scanned bool `json:"scanned"`
	// Differing is the number of documents that differ. Findings has the first ones.
	Differing int64     `json:"differing"`
	Findings  []Finding `json:"findings,omitempty"`
	// Changing is the number of documents that differed in every comparison and changed in between.
	Changing int64 `json:"changing"`
	// Unknown is the number of documents that depend on what the source does not hold.
	Unknown int64 `json:"unknown"`
	// Unheld are the fields of these documents that get what the source does not hold, as far as
	// the projection sets fields.
	Unheld []string `json:"unheld,omitempty"`
	// Poison is the number of events that can never be applied; Refusal is the reason of the first
	// one.
	Poison  int64  `json:"poison"`
	Refusal string `json:"refusal,omitempty"`

	program string
}

// OK reports that documents were compared, and that each of them is right. If none was compared,
// nothing is verified: the source may be the wrong one, or the projection may write elsewhere.
func (r Verification) OK() bool { return r.Documents > 0 && r.Differing == 0 && r.Changing == 0 }

// Verify compares the read model with the source. Errors: of a projection that does not declare its
// collections, [ErrKeyedBy], and those of the databases.
func (v *Verifier) Verify(ctx context.Context) (Verification, error) {
	collections, ok := projection.Collections(v.Projection)
	if !ok {
		return Verification{}, errors.New("the projection does not declare its collections, so it is not known which documents are its own: implement projection.Stored")
	}
	report := Verification{program: v.Program, Projection: v.Projection.Name(), Source: v.Source.String(), Sampled: v.Sample > 0}
	found := &findings{byKey: make(map[string]Finding)}
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

// verifySample compares a sample, and reads only the events that write to it.
func (v *Verifier) verifySample(ctx context.Context, collections []projection.Collection, report *Verification, found *findings) error {
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
func (r *Verification) countPass(p *pass) {
	r.Refusal = cmp.Or(r.Refusal, p.refusal)
	r.Documents += p.compared
	r.Unknown += int64(len(p.unknown))
	for field := range p.unheld {
		if !slices.Contains(r.Unheld, field) {
			r.Unheld = append(r.Unheld, field)
		}
	}
	slices.Sort(r.Unheld)
}

// verifyAll compares in parts, each of which reads the whole source. A sample is one of the parts.
func (v *Verifier) verifyAll(ctx context.Context, collections []projection.Collection, report *Verification, found *findings) error {
	report.Scanned = true
	total, err := v.count(ctx, collections)
	if err != nil {
		return err
	}
	events, err := v.Source.Collection.EstimatedDocumentCount(ctx)
	if err != nil {
		return fmt.Errorf("count %s: %w", v.Source, err)
	}
	perPass := cmp.Or(v.Sample, v.PerPass)
	parts := uint64(max(1, (total+perPass-1)/perPass))
	first, last := uint64(0), parts
	if v.Sample > 0 {
		first = rand.Uint64N(parts)
		last = first + 1
	}
	v.toRead = (total + events) * int64(last-first)
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

// passed counts a document that was read.
func (v *Verifier) passed() {
	if v.read++; v.read%100 == 0 {
		v.Progress("verify", v.read, v.toRead)
	}
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

// recheck compares again what differed, after a fifth of Wait and at its end: by then the events
// that were on their way have arrived.
func (v *Verifier) recheck(ctx context.Context, collections []projection.Collection, found *findings) error {
	for _, pause := range []time.Duration{v.Wait / 5, v.Wait - v.Wait/5} {
		if len(found.byKey) == 0 {
			return nil
		}
		v.Progress("wait for "+commandline.Count(len(found.byKey), "difference"), 0, 0)
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

// recheckOnce compares again what differed. It reads only the events that write to it, if these can
// be found.
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
