package sim

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

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
