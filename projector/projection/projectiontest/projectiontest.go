// Package projectiontest tests a projection with nothing but its own code: no database, no broker.
//
// [Check] projects the given events, compares the documents with the expected ones, and then puts
// the projection through what happens in production, to find code that would go wrong there:
//
//   - the same event is projected again, in another order and from several goroutines at once: the
//     writes must be the same (a clock, a counter, a random number, a map's order show), and the
//     event unchanged;
//   - each event's writes are checked against the rules of package projection: a
//     [projection.Stored] writes to the collections that it declares, and to documents that are
//     keyed by what it declares; a [projection.OneDocument] writes to its one document;
//   - after every prefix everything is delivered again from the start, as after a crash: the
//     documents must be the same;
//   - the events of different aggregates are interleaved in other ways, each aggregate's own in
//     order: the documents must be the same, because no order between aggregates is guaranteed.
//     Write a document that many aggregates feed with operators that give the same result in any
//     order: Inc, Min and Max, not Set;
//   - updates are delivered with a newer document than the change, as by a producer with
//     FULL_DOCUMENT=updateLookup that is late: the documents must come out the same;
//   - the events are repeated: with later versions, for other aggregates, and, field by field, with
//     a new value each time for every number, text, time and identifier in the source's documents.
//     A document that grows with them every time grows without bound.
//
// Package memory keeps the documents, and writes as MongoDB does.
//
// Check assumes that every field can have many values. If one has few, like a status or a currency,
// and a document has an entry for each, say so with [Few]; if you know another bound, with
// [MayGrow].
//
// Check does not find what your database refuses (unique indexes, validation), nor what the given
// events do not show. And it does not find growth with values that the projection refuses or
// ignores because it does not know them, or with two fields that must agree, if the projection
// refuses an event in which only one of them is new.
package projectiontest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

// TB is the part of *testing.T that is needed. A Logf is used if there is one.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Documents are the documents of a read model, by collection: each is Extended JSON text, or
// anything that package bson marshals. Numbers are compared by value: 3 equals the int64 3.
type Documents map[string][]any

// Check fails the test with every problem that it finds. want is the whole read model after the
// events; nil skips that comparison.
//
// A document that every aggregate writes to is no failure, but worth knowing: it is logged if t has
// a Logf, as *testing.T does. Go shows the log of a test that passes only with go test -v.
func Check(t TB, p projection.Projection, events []projection.Event, want Documents, options ...Option) {
	t.Helper()
	if err := Problems(p, events, want, options...); err != nil {
		t.Errorf("projection %s:\n%v", p.Name(), err)
		return
	}
	if log, ok := t.(interface {
		Logf(format string, args ...any)
	}); ok {
		for _, warning := range newKit(p, events, options).hot() {
			log.Logf("projection %s: %s", p.Name(), warning)
		}
	}
}

// Option gives [Check] what it cannot know.
type Option func(*kit)

// MayGrow declares that the documents of a collection grow with the history, and that you know a
// bound: an aggregate has a hundred events at most, for example.
func MayGrow(collection string) Option { return func(k *kit) { k.mayGrow[collection] = true } }

// Few declares that fields of the source's documents have few values in the whole history, like a
// status or a currency: a document with an entry for each value does not grow without bound. A path
// has dots, such as "data.currency".
func Few(paths ...string) Option {
	return func(k *kit) {
		for _, path := range paths {
			k.few[path] = true
		}
	}
}

// PostImages declares that an update carries the document as it was right after the update: the
// source keeps post-images, and the producer requests them (FULL_DOCUMENT=required). A projection
// that needs them declares so: [projection.PostImages].
func PostImages() Option { return func(k *kit) { k.postImages = true } }

func newKit(p projection.Projection, events []projection.Event, options []Option) *kit {
	k := &kit{projection: p, events: stampFrom(events, 0), mayGrow: make(map[string]bool), few: make(map[string]bool)}
	for _, o := range options {
		o(k)
	}
	if needs, ok := p.(projection.PostImages); ok && needs.NeedsPostImages() {
		k.postImages = true
	}
	for i := range k.events {
		e := &k.events[i]
		e.PostImage = k.postImages && e.Operation == projection.OperationUpdate && e.Document() != nil
	}
	return k
}

// Problems is like [Check] without a test. It returns the problems, joined, or nil without any.
func Problems(p projection.Projection, events []projection.Event, want Documents, options ...Option) error {
	k := newKit(p, events, options)
	if err := k.project(); err != nil {
		return err // without writes there is nothing to check
	}
	model, err := k.inOrder(k.straight())
	if err != nil {
		return err
	}
	if large := tooLarge(model); large != nil {
		return large // nothing else is known of a document that MongoDB does not store
	}
	var problems []error
	if want != nil {
		problems = compare(want, model)
	}
	if impure := k.again(); len(impure) > 0 {
		return errors.Join(append(problems, impure...)...) // the rest would fail as well, and name other causes
	}
	problems = append(problems, k.redelivered(model)...)
	problems = append(problems, k.interleaved(model)...)
	problems = append(problems, k.late(model)...)
	problems = append(problems, k.unbounded()...)
	return errors.Join(problems...)
}

// CheckPermanent fails the test unless the projection returns a permanent error for the event.
func CheckPermanent(t TB, p projection.Projection, e projection.Event) {
	t.Helper()
	events := stampFrom([]projection.Event{e}, 0)
	writes, err := apply.Project(p, events[0].Change)
	switch {
	case err == nil:
		t.Errorf("projection %s: %s: expected a permanent error, got %s", p.Name(), describe(events, 0), describeWrites(writes))
	case !errors.Is(err, projection.ErrPermanent):
		t.Errorf("projection %s: %s: expected a permanent error, got one that would be retried indefinitely: %v", p.Name(), describe(events, 0), err)
	}
}

// kit is one check.
type kit struct {
	projection projection.Projection
	events     []projection.Event
	writes     [][]projection.Write // of each event, the first time
	mayGrow    map[string]bool      // by collection
	few        map[string]bool      // by path
	postImages bool
}

// largestDocument is the most bytes that MongoDB stores in one document.
const largestDocument = 16 << 20

// tooLarge returns the documents that MongoDB would refuse because of their size.
func tooLarge(model *memory.Store) error {
	var problems []error
	for collection := range model.Collections() {
		for _, document := range model.All(collection) {
			text, err := bson.Marshal(document)
			if err == nil && len(text) > largestDocument {
				problems = append(problems, fmt.Errorf("%s %s: the given events make a document of %d bytes, most of it in %s; MongoDB stores at most %d, so "+
					"the aggregate would be parked", collection, memory.Text(document[0].Value), len(text), largest(document), largestDocument))
			}
		}
	}
	return errors.Join(problems...)
}

// compare compares the whole read model with the expected one.
func compare(want Documents, model *memory.Store) (problems []error) {
	expected := make(map[string]map[string]bool)
	for collection, documents := range want {
		expected[collection] = make(map[string]bool)
		for _, d := range documents {
			wanted := fields(raw(d))
			id := raw(d).Lookup("_id")
			key, _, err := memory.Key(id)
			if err != nil || id.Type == 0 {
				problems = append(problems, fmt.Errorf("the expected document %s of %s has no _id, or one that no document can have", memory.Text(wanted), collection))
				continue
			}
			expected[collection][key] = true
			got, there := model.ByKey(collection, key)
			if !there {
				problems = append(problems, fmt.Errorf("%s %s: expected %s, but there is no such document", collection, memory.Text(wanted[0].Value), memory.Text(wanted)))
				continue
			}
			for _, difference := range memory.DiffNumbers(wanted, got) {
				problems = append(problems, fmt.Errorf("%s %s: %s", collection, memory.Text(got[0].Value), difference))
			}
		}
	}
	for collection := range model.Collections() {
		for key, got := range model.All(collection) {
			if !expected[collection][key] {
				problems = append(problems, fmt.Errorf("%s: the document %s is not expected", collection, memory.Text(got)))
			}
		}
	}
	return problems
}

// describeWrites describes an event's writes for people.
func describeWrites(writes []projection.Write) string {
	if len(writes) == 0 {
		return "no write"
	}
	all := make([]string, len(writes))
	for i, w := range writes {
		collection, id := w.Target()
		target := collection + " " + memory.Text(id)
		switch w := w.(type) {
		case projection.UpdateOne:
			ops := make([]string, len(w.Ops))
			for j, op := range w.Ops {
				ops[j] = fmt.Sprintf("%s %s %s", op.Kind, op.Field, text(op.Value))
			}
			all[i] = "update " + target + ": " + strings.Join(ops, ", ")
		case projection.ReplaceOne:
			all[i] = "replace " + target + ": " + memory.Text(w.Document)
		case projection.DeleteOne:
			all[i] = "delete " + target
			if len(w.If) > 0 {
				all[i] += " if " + memory.Text(projection.Filter(w.If))
			}
		}
	}
	return strings.Join(all, "; ")
}

// text is like [memory.Text], except that a time keeps its nanoseconds, so that two readings of a
// clock differ.
func text(value any) string {
	if t, ok := value.(time.Time); ok {
		return t.Format(time.RFC3339Nano)
	}
	return memory.Text(value)
}

// sameDocuments compares two read models.
func sameDocuments(want, got *memory.Store) (differences []string) {
	for collection := range want.Collections() {
		for key, w := range want.All(collection) {
			g, there := got.ByKey(collection, key)
			if !there {
				differences = append(differences, fmt.Sprintf("%s %s is not there", collection, memory.Text(w[0].Value)))
				continue
			}
			for _, d := range memory.Diff(w, g) {
				differences = append(differences, fmt.Sprintf("%s %s: %s", collection, memory.Text(w[0].Value), d))
			}
		}
	}
	for collection := range got.Collections() {
		for key, g := range got.All(collection) {
			if _, there := want.ByKey(collection, key); !there {
				differences = append(differences, fmt.Sprintf("%s %s is there", collection, memory.Text(g[0].Value)))
			}
		}
	}
	return differences
}
