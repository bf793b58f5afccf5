package plan

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// What determines the aggregate of an update or a delete if events are changes of documents.
const (
	Images         = "images"          // the image before it; a change without one stops the stream
	RequiredImages = "required-images" // the same, and MongoDB refuses a missing one
	Keys           = "keys"            // the document's key: ON_UNKNOWN_AGGREGATE=documentKey
	Compound       = "compound"        // the document's key, {aggregate, version}; only beside a snapshot
)

// documents turns the events of every other run into changes of documents: each aggregate has one
// document, which is inserted, changed and deleted. A document that is looked up late has then
// changed further, or is gone. In some of these runs images expire, of changes that were published
// and of changes that have not been read yet.
func (d *drawing) documents(r *rand.Rand) {
	how := []string{"", "", "", Images, RequiredImages, Keys}[r.IntN(6)]
	if how == "" {
		return
	}
	changes(r, d.plan.Bursts)
	for _, at := range moments(r, r.IntN(3), d.length) {
		if r.IntN(2) == 0 {
			d.add(Step{At: at, Kind: KillProducers, Silent: r.IntN(2) == 0, For: between(r, 2*time.Second, 6*time.Second)})
			at = sum(at, time.Duration(r.Int64N(int64(2*time.Second))))
		}
		d.add(Step{At: at, Kind: ExpireImages})
	}
	// If documents change, a version is not a number that grows by one with each insert.
	d.plan.Settings.Documents, d.plan.Settings.GapWait = how, Duration{}
}

// changes draws what each event does to the document of its aggregate.
func changes(r *rand.Rand, bursts []Burst) {
	for _, b := range bursts {
		for i := range b.Events {
			b.Events[i].Operation = []envelope.Operation{
				envelope.Update, envelope.Update, envelope.Update, envelope.Replace, envelope.Delete, envelope.Insert,
			}[r.IntN(6)]
		}
	}
}

// share lets both streams of a run carry events of the same aggregates, in three of four runs with
// two: their positions cannot be compared, and now one leader is ahead and now the other. It does
// not if it is not known in advance which aggregates are parked.
func (d *drawing) share(r *rand.Rand) {
	s := &d.plan.Settings
	if s.Shared = s.Streams > 1 && s.Deliveries == 0 && r.IntN(4) > 0; !s.Shared {
		return
	}
	for _, b := range d.plan.Bursts {
		for i := range b.Events {
			b.Events[i].Collection = Collections[r.IntN(s.Streams)]
		}
	}
}

// rewinds rewinds the checkpoint of a stream, once or twice, in two of three runs in which no other
// fault affects what is published: no images that expire, no refused messages, no replaced
// collections, no dead letters of unknown number.
func (d *drawing) rewinds(r *rand.Rand) {
	s := d.plan.Settings
	streams := s.StreamNames()
	n, of := 1+r.IntN(2), streams[r.IntN(len(streams))]
	if r.IntN(3) == 0 || s.Documents != "" || s.OnRefused != "" || s.OnReplaced != "" || s.Deliveries > 0 {
		return
	}
	for _, at := range moments(r, n, d.length) {
		d.add(Step{At: at, Kind: Rewind, Stream: of, For: between(r, time.Second, 30*time.Second)})
	}
}

// replacements gives another collection the name of a watched one, in every third run whose events
// are inserts: the documents go, and the stream continues behind an invalidate, or stops until the
// operator knows.
func (d *drawing) replacements(r *rand.Rand) {
	streams := d.plan.Settings.StreamNames()
	policy, at, of := []string{"continue", "fail"}[r.IntN(2)], moments(r, 1+r.IntN(2), d.length), streams[r.IntN(len(streams))]
	if r.IntN(3) > 0 || d.plan.Settings.Documents != "" {
		return
	}
	d.plan.Settings.OnReplaced = policy
	for _, at := range at {
		d.add(Step{At: at, Kind: ReplaceCollection, Stream: of})
	}
}
