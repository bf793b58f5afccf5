// Package verify recomputes a read model from the source collection, by the projection's own code and in memory, and says
// where the read model differs.
//
// Guaranteed: memory is bounded by a number of documents, not by the collections: of large ones the documents are compared
// in several passes, each over a part of them. Nothing is written. A difference is looked at again before it is
// reported, so that what was only on its way does not count; and it says how far the aggregates behind it are applied,
// which tells an event that is still to come from a document that is wrong.
//
// What cannot be known:
//   - changes of which the source keeps no trace. Each document of the source counts as one insert: right for event stores,
//     and for projections of the current documents, such as the mirror; not for one that counts updates or deletes;
//   - what an event's message told and its document does not: time, position, identity. Documents that depend on it
//     are counted and not compared;
//   - a document that changes at every look. It is reported as changing, and neither right nor wrong.
package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// ErrNotStored is a projection that does not say where its documents are.
var ErrNotStored = errors.New("the projection does not name its collections, so that nobody knows which documents are its own: " +
	"implement projection.Stored")

// Verifier compares one read model with its source.
type Verifier struct {
	Projection projection.Projection
	Source     Source
	ReadModel  *mongo.Database
	// Guards tells how far aggregates are applied.
	Guards func(ctx context.Context, aggregates ...string) (map[string]apply.Guard, error)
	// Sample, unless 0, is about how many documents to compare: a random part of them.
	Sample int64
	// Wait is how long a difference may take to heal before it is reported.
	Wait time.Duration
	// PerPass is about how many documents are held in memory at once: what is more is compared in parts, each of which reads
	// both sides anew.
	PerPass int64
	// Kept is the most differences that are looked at again and told of one by one; 0 means 1,000. The rest is counted.
	Kept int
}

// Report is what was found.
type Report struct {
	Projection string `json:"projection"`
	Source     string `json:"source"`
	Events     int64  `json:"events"`    // of the source
	Documents  int64  `json:"documents"` // compared
	Sampled    bool   `json:"sampled"`
	// Differing is how many documents differ; Findings tells of the first ones.
	Differing int64     `json:"differing"`
	Findings  []Finding `json:"findings,omitempty"`
	// Changing is how many documents differed at every look and changed in between.
	Changing int64 `json:"changing"`
	// Unknown is how many documents depend on what the source does not tell.
	Unknown int64 `json:"unknown"`
	// Poison is how many events the projection says can never be applied.
	Poison int64 `json:"poison"`
}

// OK says that every document compared is right.
func (r Report) OK() bool { return r.Differing == 0 && r.Changing == 0 }

// Verify compares. Errors: [ErrNotStored], and what the databases say.
func (v *Verifier) Verify(ctx context.Context) (Report, error) {
	collections, ok := projection.Collections(v.Projection)
	if !ok {
		return Report{}, ErrNotStored
	}
	report := Report{Projection: v.Projection.Name(), Source: v.Source.String(), Sampled: v.Sample > 0}
	total, err := v.count(ctx, collections)
	if err != nil {
		return report, err
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
	found := newFindings(v.Kept)
	for n := first; n < last; n++ {
		p := &pass{Verifier: v, collections: collections, wanted: func(key string) bool { return parts == 1 || part(key)%parts == n }}
		if err := p.run(ctx); err != nil {
			return report, err
		}
		report.Events, report.Poison = p.events, p.poison
		report.Documents += p.compared
		report.Unknown += int64(len(p.unknown))
		found.add(p.found)
	}
	if err := v.again(ctx, collections, found); err != nil {
		return report, err
	}
	report.Differing, report.Changing, report.Findings = found.differing, found.changing, found.list()
	return report, nil
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

// again looks at what differed once more, after a while and at the end of the time to wait: what only was on its way heals.
func (v *Verifier) again(ctx context.Context, collections []projection.Collection, found *findings) error {
	for _, pause := range []time.Duration{v.Wait / 5, v.Wait - v.Wait/5} {
		if len(found.byKey) == 0 {
			return nil
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
		p := &pass{
			Verifier: v, collections: collections, traced: true,
			wanted: func(key string) bool { _, differs := found.byKey[key]; return differs },
		}
		if err := p.run(ctx); err != nil {
			return err
		}
		if err := found.confirm(ctx, p, v.Guards); err != nil {
			return err
		}
	}
	return nil
}

// part spreads documents over passes.
func part(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash takes everything
	return h.Sum64()
}

// pass is one look at a part of the documents: the source first, then the read model.
type pass struct {
	*Verifier
	collections []projection.Collection
	wanted      func(key string) bool
	// traced keeps, for each wanted document, the aggregates that write to it.
	traced bool

	store    memory.Store
	unknown  map[string]bool
	feeds    map[string]map[string]int64 // by document: its aggregates, each with its last version
	events   int64
	poison   int64
	compared int64
	found    []Finding

	current string // the aggregate that is being read
	stopped bool   // at a poison event that parked it
}

// documentKey identifies a document of all collections.
func documentKey(collection, key string) string { return collection + "\x00" + key }

func (p *pass) run(ctx context.Context) error {
	p.unknown, p.feeds = make(map[string]bool), make(map[string]map[string]int64)
	if err := p.Source.each(ctx, func(c envelope.Change) error { return p.add(ctx, c) }); err != nil {
		return err
	}
	for _, c := range p.collections {
		if err := p.compare(ctx, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// add applies one event of the source to the documents in memory.
func (p *pass) add(ctx context.Context, c envelope.Change) error {
	p.events++
	if c.Aggregate != p.current {
		p.current, p.stopped = c.Aggregate, false
	}
	if p.stopped {
		return nil
	}
	writes, err := apply.Project(p.Projection, guess(c, false))
	if err == nil {
		var other []projection.Write
		if other, err = apply.Project(p.Projection, guess(c, true)); err == nil && !memory.Same(writes, other) {
			return p.unknowable(writes, other)
		}
	}
	if err == nil {
		err = p.write(c, writes)
	}
	if errors.Is(err, projection.ErrPermanent) || errors.Is(err, memory.ErrRefused) {
		p.poison++
		// What follows is applied only where somebody dropped the event.
		guards, err := p.Guards(ctx, c.Aggregate)
		p.stopped = guards[c.Aggregate].Parked != nil
		return err
	}
	return err
}

func (p *pass) write(c envelope.Change, writes []projection.Write) error {
	for _, w := range writes {
		key, ok, err := p.target(w)
		if err != nil {
			return err
		}
		if !ok || p.unknown[key] {
			continue
		}
		if err := p.store.Apply(w); errors.Is(err, memory.ErrUnsupported) {
			p.unknown[key] = true
		} else if err != nil {
			return err
		}
		if p.traced {
			if p.feeds[key] == nil {
				p.feeds[key] = make(map[string]int64)
			}
			p.feeds[key][c.Aggregate] = max(p.feeds[key][c.Aggregate], c.Version)
		}
	}
	return nil
}

// target is the key of the document that a write goes to; ok says that this pass looks at it.
func (p *pass) target(w projection.Write) (key string, ok bool, err error) {
	collection, id := w.Target()
	inner, _, err := memory.Key(id)
	if err != nil {
		return "", false, err
	}
	key = documentKey(collection, inner)
	return key, p.wanted(key), nil
}

// unknowable notes the documents of an event whose writes depend on what the source does not tell.
func (p *pass) unknowable(all ...[]projection.Write) error {
	for _, writes := range all {
		for _, w := range writes {
			key, ok, err := p.target(w)
			if err != nil {
				return err
			}
			if ok {
				p.unknown[key] = true
			}
		}
	}
	return nil
}

// compare holds one collection of the read model against the documents in memory.
func (p *pass) compare(ctx context.Context, collection string) (err error) {
	cursor, err := p.ReadModel.Collection(collection).Find(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("read %s: %w", collection, err)
	}
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	seen := make(map[string]bool)
	for cursor.Next(ctx) {
		raw := cursor.Current
		id := raw.Lookup("_id")
		inner, _, err := memory.Key(id)
		if err != nil {
			return fmt.Errorf("read %s: %w", collection, err)
		}
		key := documentKey(collection, inner)
		if !p.wanted(key) || apply.Stub(raw) {
			continue
		}
		var got bson.D
		if err := bson.Unmarshal(raw, &got); err != nil {
			return fmt.Errorf("read document %s of %s: %w", id, collection, err)
		}
		got = withoutGuard(got)
		p.compared++
		seen[inner] = true
		want, expected := p.store.ByKey(collection, inner)
		f := Finding{Collection: collection, ID: memory.Text(id), key: key, state: part(string(raw))}
		switch {
		case p.unknown[key]:
			continue
		case !expected:
			f.Says = []string{"is there, and no event of the source makes it"}
		default:
			f.Says = memory.Diff(want, got)
		}
		if len(f.Says) > 0 {
			p.found = append(p.found, f)
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", collection, err)
	}
	for inner, want := range p.store.All(collection) {
		key := documentKey(collection, inner)
		if seen[inner] || p.unknown[key] {
			continue
		}
		p.compared++
		p.found = append(p.found, Finding{Collection: collection, ID: memory.Text(want[0].Value), key: key, Says: []string{"is missing"}})
	}
	return nil
}

// withoutGuard is a document as the projection knows it.
func withoutGuard(d bson.D) bson.D {
	kept := make(bson.D, 0, len(d))
	for _, e := range d {
		if e.Key != projection.GuardField {
			kept = append(kept, e)
		}
	}
	return kept
}
