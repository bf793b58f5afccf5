package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// Some faults stop a stream permanently, with an error that gives the reason, until an operator
// decides, as is promised. In the simulation the platform starts the process again, which stops
// again, and an operator follows the error's advice.

// stop is such an error, and what the operator does.
type stop struct {
	want   string // by what the error is known
	decide func(w *world, stream, why string) (done bool)
}

// The errors of an update or a delete whose image is gone: the producer's, and MongoDB's if the
// image is required.
const (
	unknownAggregate = "does not contain the id of its aggregate"
	requiredImage    = "with FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable"
)

// stops returns those that the plan may cause.
func (w *world) stops() (all []stop) {
	if w.plan.Settings.OnReplaced == "fail" {
		all = append(all, stop{replacedCollection, (*world).goOn})
	}
	if w.plan.Settings.OnRefused == "fail" {
		all = append(all, stop{refusedForGood, (*world).leaveOut})
	}
	if how := w.plan.Settings.Documents; w.plan.Has(plan.ExpireImages) && how != "" && how != plan.Keys {
		all = append(all, stop{unknownAggregate, (*world).passOver}, stop{requiredImage, (*world).ask})
	}
	return all
}

// expected reports whether a service may end with an error.
func (w *world) expected(err error) bool {
	if w.versions.dropping.Load() && err != nil && strings.Contains(err.Error(), "this version of the projection was dropped") {
		return true
	}
	for _, s := range w.decisions {
		if err != nil && strings.Contains(err.Error(), s.want) {
			return true
		}
	}
	return false
}

// restartAfter is how long the platform waits before it restarts a process that has ended on its
// own.
const restartAfter = 2 * time.Second

// tend does what the platform and the operator do for the producers. The driver's goroutine alone.
func (w *world) tend() {
	w.bury()
	if len(w.decisions) == 0 || time.Now().Before(w.tended.Add(restartAfter/2)) {
		return
	}
	w.tended = time.Now()
	for _, s := range w.producers {
		s.renew((*instance).hasStopped, false, restartAfter)
	}
	for _, stream := range w.plan.Settings.StreamNames() {
		w.decide(stream)
	}
}

// tendUntil lets time pass until a moment of the run, and tends the producers.
func (w *world) tendUntil(ctx context.Context, at time.Duration) {
	for left := at - time.Since(w.began); left > 0; left = at - time.Since(w.began) {
		if len(w.decisions) > 0 || w.deadliest() > 0 {
			left = min(left, restartAfter/4)
		}
		if pause(ctx, left); ctx.Err() != nil {
			return
		}
		w.tend() //nolint:contextcheck // what it starts outlives its caller
	}
}

// decide has the operator find out why a stream is stopped, if it is, and decide.
func (w *world) decide(stream string) {
	text, err := w.storedText(stream + ".json.failure")
	if err != nil || w.underWay() {
		return // nothing to do, or what was sent may still arrive: the operator waits
	}
	var failure struct {
		Error string    `json:"error"`
		At    time.Time `json:"at"`
	}
	if err := json.Unmarshal(text, &failure); err != nil {
		w.Errorf("read why %s is stopped: %v", stream, err)
		return
	}
	for _, s := range w.decisions {
		if at := failure.At; strings.Contains(failure.Error, s.want) && at.After(w.decided[stream]) && s.decide(w, stream, failure.Error) {
			w.decided[stream] = time.Now()
			for _, s := range w.producers {
				s.end() // a process of several streams waits for minutes until it tries one again
				s.due = time.Now()
			}
		}
	}
}

// underWay reports whether something that a producer has sent to Service Bus may still arrive.
func (w *world) underWay() bool {
	waiting := func(i *instance) bool { return i != nil && i.bus.Waiting() }
	return slices.ContainsFunc(w.producers, func(s *slot) bool { return waiting(s.now) || slices.ContainsFunc(s.gone, waiting) })
}

// ask lets the producers accept changes without an image: the next one of them names the change
// that has none.
func (w *world) ask(_, _ string) bool {
	w.imagesMayLack.Store(true)
	return true
}

// blamed finds the position of the change and its document in the error.
var blamed = regexp.MustCompile(` at (8[0-9A-F]+) of the document \{"_id": ?"` + documentOf("") + `([^"]+)"\}`)

// forward moves the checkpoint of a stream past a change.
func (w *world) forward(stream, position string) bool {
	code, _ := w.produce("token", "set", "--forward", "--force", "--stream", stream, position)
	return code == commandline.ExitOK
}

// expired is the reason for abandoning an event whose image was gone before it was read.
const expired = "its image has expired"

// passOver moves the checkpoint past a change whose aggregate is unknown, and corrects by hand what
// it changed.
func (w *world) passOver(stream, why string) bool {
	found := blamed.FindStringSubmatch(why)
	if found == nil {
		w.Errorf("the error does not say which change it is of: %s", why)
		return true
	}
	position, aggregate := found[1], found[2]
	if !w.forward(stream, position) {
		return false
	}
	if w.record.Took(stream, position) {
		w.trace.add("the change at %s was published before", position)
		return true
	}
	c := w.record.Next(stream, aggregate)
	w.give(checker.Given{Stream: c.Stream, Aggregate: aggregate, Version: c.Version, Why: expired})
	return true
}

// replaceCollection replaces a stream's collection with one that was created under another name, as
// $out does. Its documents are in no change stream, and were not committed by the run: a message of
// them would be an effect without a commit.
func (w *world) replaceCollection(step plan.Step) {
	database := w.client.Database(plan.Database)
	_, name, _ := strings.Cut(step.Stream, ".")
	w.commit(w.Context(), func() error {
		_, err := database.Collection("made").InsertOne(w.Context(), bson.D{
			{Key: "_id", Value: fmt.Sprintf("ghost-%d", step.At.Milliseconds())}, {Key: "aggregateId", Value: "ghost"}, {Key: "version", Value: 1}, {Key: "type", Value: "Ghost"},
		})
		return err
	})
	err := w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "renameCollection", Value: plan.Database + ".made"}, {Key: "to", Value: plan.Database + "." + name}, {Key: "dropTarget", Value: true},
	}).Err()
	if err != nil {
		w.trace.add("the collection could not be replaced: %v", err) // MongoDB has no primary, or its answer got lost
		return
	}
	w.met.add("collections replaced", 1)
}

// replacedCollection is in the error of a stream that stops because its collection was replaced.
const replacedCollection = "ON_COLLECTION_REPLACED=continue"

// goOn lets the producers continue with the new collection.
func (w *world) goOn(string, string) bool {
	w.trace.add("the operator sets %s", replacedCollection)
	w.replacedIsKnown.Store(true)
	return true
}

// passedOver reports whether a collection was replaced whose stream must stop, and no stream has
// reported it yet.
func (w *world) passedOver() bool {
	return w.plan.Settings.OnReplaced == "fail" && w.met.count("collections replaced") > 0 && !w.replacedIsKnown.Load()
}
