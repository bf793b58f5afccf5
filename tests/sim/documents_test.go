package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// gone is the type of a delete, and when it occurred: it carries nothing of its own.
const gone = "Gone"

// documents are the documents whose changes are the events: one for each aggregate, which is
// inserted, changed and deleted. They belong to one goroutine.
type documents struct {
	w        *world
	there    map[place]version
	versions map[place]int64 // of the aggregate, or of the document if its key determines the aggregate
	deletes  map[place]int64
}

// place is an aggregate in a collection; without a collection if a single stream carries it.
type place struct{ collection, aggregate string }

// version is the content of a document: its number, and a number of the write, which is unique.
type version struct {
	number int64
	write  string
}

// newDocuments returns nil if events are documents that are inserted and never changed.
func (w *world) newDocuments() *documents {
	if w.plan.Settings.Documents == "" {
		return nil
	}
	return &documents{w: w, there: map[place]version{}, versions: map[place]int64{}, deletes: map[place]int64{}}
}

// keepImages creates the collections, which keep the documents before and after each change, if
// events are changes.
func (w *world) keepImages() {
	if w.plan.Settings.Documents == "" {
		return
	}
	for _, name := range plan.Collections[:w.plan.Settings.Streams] {
		require.NoError(w, w.client.Database(plan.Database).CreateCollection(w.Context(), name,
			options.CreateCollection().SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})))
	}
}

// readDocuments sets what a producer needs to read changes of documents.
func readDocuments(c *producer.Config, how string) {
	if how == "" {
		return
	}
	c.Operations = []envelope.Operation{envelope.Insert, envelope.Update, envelope.Replace, envelope.Delete}
	switch how {
	case plan.RequiredImages:
		c.BeforeChange = "required"
	case plan.Keys:
		c.OnUnknownAggregate = "documentKey"
	case plan.Compound:
		c.AggregateIDPath = "_id.aggregate"
	}
}

// documentOf returns the _id of an aggregate's document.
func documentOf(aggregate string) string { return "document of " + aggregate }

// change commits an event as a change of its aggregate's document, or as an insert if the document
// does not exist.
func (d *documents) change(ctx context.Context, e plan.Event) {
	w, id, of, kind := d.w, documentOf(e.Aggregate), e.Aggregate, e.Kind
	here := place{e.Collection, e.Aggregate}
	was, exists := d.there[here]
	operation := e.Operation
	switch {
	case !exists:
		operation = envelope.Insert
	case operation == envelope.Insert, operation == "":
		operation = envelope.Update
	}
	if w.plan.Settings.Documents == plan.Keys && (operation == envelope.Update || operation == envelope.Delete) {
		of = id
	}
	counted := place{e.Collection, of}
	d.versions[counted]++
	commit := history.Commit{Stream: streamOf(e.Collection), Aggregate: of, Version: d.versions[counted]}
	if operation == envelope.Delete {
		kind, commit.MessageVersion = gone, was.number
	}
	w.record.Commit(commit, kind)
	at := occurred(commit, kind)
	if w.plan.Settings.Documents == plan.Compound {
		w.rows.expect(commit, operation, at)
	}
	d.write(ctx, here, operation, was, bson.D{
		{Key: "aggregateId", Value: e.Aggregate},
		{Key: "version", Value: commit.Version},
		{Key: "type", Value: kind},
		{Key: "occurredAt", Value: at},
		// As one value, which differs each time, so that an update reports all of it.
		{Key: "event", Value: bson.D{{Key: "type", Value: kind}, {Key: "occurredAt", Value: at}}},
	})
	if d.there[here] = (version{commit.Version, at}); operation == envelope.Delete {
		delete(d.there, here)
		d.deletes[here]++
	}
}

// id returns the _id of the present or the next document of an aggregate. With [plan.Compound],
// each document's place is taken once by another one before the next place is.
func (d *documents) id(of place) any {
	if d.w.plan.Settings.Documents == plan.Compound {
		return compoundID(of.aggregate, 1+d.deletes[of]/2)
	}
	return documentOf(of.aggregate)
}

// compoundID returns an _id of [plan.Compound].
func compoundID(aggregate string, version int64) bson.D {
	return bson.D{{Key: "aggregate", Value: aggregate}, {Key: "version", Value: version}}
}

// write executes a change once: an answer may get lost, and then the document is no longer what it
// was before.
func (d *documents) write(ctx context.Context, here place, operation envelope.Operation, was version, now bson.D) {
	c, id := d.w.source(history.Commit{Stream: streamOf(here.collection), Aggregate: here.aggregate}), d.id(here)
	before := bson.D{{Key: "_id", Value: id}, {Key: "occurredAt", Value: was.write}}
	d.w.commit(ctx, func() (err error) {
		switch operation {
		case envelope.Insert:
			_, err = c.InsertOne(ctx, append(bson.D{{Key: "_id", Value: id}}, now...))
		case envelope.Update:
			_, err = c.UpdateOne(ctx, before, bson.D{{Key: "$set", Value: now}})
		case envelope.Replace:
			_, err = c.ReplaceOne(ctx, before, now)
		case envelope.Delete:
			_, err = c.DeleteOne(ctx, before)
		}
		return err
	})
}

// countLookup counts a document that was looked up late: after it had changed further, or after it
// was deleted.
func (w *world) countLookup(update projection.Event) {
	now := update.Document()
	written, _ := now.Lookup("occurredAt").StringValueOK()
	wrote, _ := update.Body.Lookup("updateDescription", "updatedFields", "occurredAt").StringValueOK()
	switch {
	case now == nil:
		w.met.add("looked up when gone", 1)
	case written != wrote:
		w.met.add("looked up later", 1)
	}
}

// asInsert returns an event in the form of an insert. Of a change it contains what is the same at
// every reading: the inserted document, or what an update wrote.
func (w *world) asInsert(e projection.Event) (projection.Event, error) {
	document := e.Document()
	switch e.Operation {
	case envelope.Insert:
		return e, nil
	case envelope.Update:
		w.countLookup(e)
		document, _ = e.Body.Lookup("updateDescription", "updatedFields", "event").DocumentOK()
	case envelope.Delete:
		document, _ = bson.Marshal(bson.D{{Key: "type", Value: gone}, {Key: "occurredAt", Value: gone}}) // two strings
	default:
	}
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: envelope.Insert}, {Key: "fullDocument", Value: document}})
	if err != nil {
		return e, fmt.Errorf("describe a change as an insert: %w", err)
	}
	e.Operation, e.Body = envelope.Insert, body
	return e, nil
}

// contained is why a change is not published: the row of its document contains it, or the document
// was deleted before its row was read.
const contained = "contained in a row"

// rows finds the changes of documents that a snapshot replaces by their rows. A change may be
// missing only from the beginning of a document: before anything else of the document is published,
// and only if the document's row or its delete follows. A delete may never be missing. What is
// missing otherwise stays expected, so the judge reports it as lost; what is published in spite of
// a row is one message too many.
type rows struct {
	mu    sync.Mutex // guards everything below
	lines map[place]*changesOf
	seen  map[string]bool // messages, by id
}

// changesOf are the changes of one aggregate, which has one document at a time.
type changesOf struct {
	all       []change
	next      int  // of those that no message has accounted for
	published bool // something of the present document
}

type change struct {
	history.Commit
	deletes bool
	write   string // unique
}

// expect records a change that is being committed.
func (r *rows) expect(c history.Commit, operation envelope.Operation, write string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := place{c.Stream, c.Aggregate}
	if r.lines[of] == nil {
		r.lines[of] = &changesOf{}
	}
	r.lines[of].all = append(r.lines[of].all, change{c, operation == envelope.Delete, write})
}

// supersede records which changes a message that the broker has just accepted stands for.
func (w *world) supersede(a servicebus.Accepted) {
	if w.plan.Settings.Documents != plan.Compound {
		return
	}
	bodies := witness.Bodies(a)
	for i, e := range witness.Events(a) {
		w.supersedes(e, bodies[i])
	}
}

func (w *world) supersedes(a servicebus.Accepted, body bson.Raw) {
	r, taken := &w.rows, witness.Accepted(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.lines[place{taken.Stream, taken.Aggregate}]
	if line == nil {
		line = r.lines[place{"", taken.Aggregate}]
	}
	if line == nil || r.seen[taken.MessageID] {
		return
	}
	r.seen[taken.MessageID] = true
	operation, _ := a.Properties["operation"].(string)
	deletes, write := envelope.Operation(operation) == envelope.Delete, ""
	if taken.Row {
		write, _ = body.Lookup("fullDocument", "occurredAt").StringValueOK()
	}
	for n, c := range line.all[line.next:] {
		switch {
		case taken.Row && c.write != write, deletes && !c.deletes, !taken.Row && !deletes && c.Version != taken.Version:
			continue
		case taken.Row || deletes:
			w.contain(line.all[line.next:][:n], line.published)
		}
		line.next += n + 1
		line.published = !deletes
		return
	}
}

// contain excuses the changes before a row or a delete, unless something of the document was
// published before them.
func (w *world) contain(changes []change, published bool) {
	w.record.Note(func(run *checker.Run) {
		for _, c := range changes {
			if c.deletes {
				published = false
			} else if !published {
				run.Given = append(run.Given, checker.Given{Stream: c.Stream, Aggregate: c.Aggregate, Version: c.Commit.Version, Why: contained})
			}
		}
	})
}
