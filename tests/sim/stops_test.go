package sim

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// Some faults stop a stream permanently, with an error that gives the reason, until an operator
// decides, as is promised. In the simulation the platform starts the process again, which stops
// again, and an operator follows the error's advice.

// stop is such an error, and what the operator does.
type stop struct {
	says   string // by what the error is known
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
	for _, s := range w.plan.Steps {
		if s.Kind == plan.ExpireImages && w.plan.Settings.Documents != "" && w.plan.Settings.Documents != plan.Keys {
			return append(all, stop{unknownAggregate, (*world).passOver}, stop{requiredImage, (*world).ask})
		}
	}
	return all
}

// expected reports whether a service may end with an error.
func (w *world) expected(err error) bool {
	if w.versions.dropping.Load() && err != nil && strings.Contains(err.Error(), "this version of the projection was dropped") {
		return true
	}
	for _, s := range w.decisions {
		if err != nil && strings.Contains(err.Error(), s.says) {
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
		switch i := s.now; {
		case i != nil && i.hasStopped():
			w.trace.add("%s has stopped", i.name)
			s.kill(false)
			s.due = time.Now().Add(restartAfter)
		case i == nil && !s.due.IsZero() && time.Now().After(s.due):
			s.due = time.Time{}
			s.start()
		}
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
		if at := failure.At; strings.Contains(failure.Error, s.says) && at.After(w.decided[stream]) && s.decide(w, stream, failure.Error) {
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
	for _, s := range w.producers {
		if i := s.now; i != nil && i.bus.Waiting() {
			return true
		}
		for _, i := range s.gone {
			if i.bus.Waiting() {
				return true
			}
		}
	}
	return false
}

// ask lets the producers accept changes without an image: the next one of them names the change
// that has none.
func (w *world) ask(_, _ string) bool {
	w.imagesMayLack.Store(true)
	return true
}

// blamed finds the position of the change and its document in the error.
var blamed = regexp.MustCompile(` at (8[0-9A-F]+) of the document \{"_id": ?"` + documentOf("") + `([^"]+)"\}`)

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
	if code, _ := w.produce("token", "set", "--forward", "--force", "--stream", stream, position); code != commandline.ExitOK {
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
