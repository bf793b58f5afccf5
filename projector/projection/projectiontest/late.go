package projectiontest

import (
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

// late projects the history as it arrives from a producer that is late. With
// FULL_DOCUMENT=updateLookup, the document of an update is looked up when the producer reads the
// update, and by then it may be newer, or deleted. The first time, every document is one change
// newer; the second time, it is as new as it gets.
func (k *kit) late(want *memory.Store) []error {
	if k.postImages {
		return nil
	}
	for _, last := range []bool{false, true} {
		events, changed := k.lookedUpLate(last)
		if changed < 0 {
			return nil // no update is followed by another change of its document
		}
		model := &memory.Store{}
		if err := k.replay(model, events); err != nil {
			return []error{lateError(k.events, changed, err)}
		}
		if differences := sameDocuments(want, model); len(differences) > 0 {
			return []error{lateError(k.events, changed, errors.New(strings.Join(differences, "\n  ")))}
		}
	}
	return nil
}

func lateError(events []projection.Event, changed int, err error) error {
	return fmt.Errorf("the documents depend on when the document of an update was looked up, from %s on: with FULL_DOCUMENT=updateLookup, "+
		"fullDocument is read later than the change. It may contain later changes too, or be null if the document is gone. Set what is in the "+
		"document instead of adding a difference, or take the change from UpdateDescription. If the source keeps post-images "+
		"(changeStreamPreAndPostImages) and the producer asks for them (FULL_DOCUMENT=required), declare it: projectiontest.PostImages()\n  %w",
		describe(events, changed), err)
}

// lookedUpLate returns the events with the documents of updates as they are after the next change
// of the same document, or after the last one. first is the first event that differs, or -1 if none
// does.
func (k *kit) lookedUpLate(last bool) (events []projection.Event, first int) {
	first = -1
	for i, e := range k.events {
		if e.Operation == projection.OperationUpdate && e.Document() != nil {
			if document, found := k.after(i, last); found {
				e.Body = withDocument(e.Body, document)
				if first < 0 {
					first = i
				}
			}
		}
		events = append(events, e)
	}
	return events, first
}

// after returns the document of event i as it is after its next change, or after its last; nil if
// it is deleted then.
func (k *kit) after(i int, last bool) (document bson.Raw, found bool) {
	key := memory.Text(k.events[i].Key())
	for _, e := range k.events[i+1:] {
		if e.Aggregate != k.events[i].Aggregate || memory.Text(e.Key()) != key || (e.Document() == nil && e.Operation != projection.OperationDelete) {
			continue
		}
		document, found = e.Document(), true
		if !last || document == nil {
			break
		}
	}
	return document, found
}

// withDocument replaces the fullDocument in an event's body; nil becomes null.
func withDocument(body, document bson.Raw) bson.Raw {
	d := fields(body)
	for i := range d {
		if d[i].Key == "fullDocument" {
			d[i].Value = nil
			if document != nil {
				d[i].Value = document
			}
		}
	}
	return raw(d)
}

// replay projects events and applies their writes to a model.
func (k *kit) replay(model *memory.Store, events []projection.Event) error {
	for i, e := range events {
		writes, err := apply.Project(k.projection, e.Change)
		if err != nil {
			return fmt.Errorf("%s: %w", describe(k.events, i), err)
		}
		for _, w := range writes {
			if err := model.Apply(w); err != nil {
				return fmt.Errorf("%s: %w", describe(k.events, i), err)
			}
		}
	}
	return nil
}
