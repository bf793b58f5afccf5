package run

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// accepted records what the broker takes from the producers.
func (r *runner) accepted(a servicebus.Accepted) {
	if a.Entity != r.places.route.In() {
		return
	}
	for _, e := range witness.Events(a) {
		r.rec.Accept(witness.Accepted(e))
	}
}

// watch follows the read model by a change stream of our own until ctx ends.
func (r *runner) watch(data *data) func(context.Context) error {
	return func(ctx context.Context) error {
		return witness.Watch(ctx, data.readModel.Collection(r.witnessIn), func() { close(r.watched) }, r.observe)
	}
}

// observe records one change of a read-model document.
func (r *runner) observe(change bson.Raw, at time.Time) {
	if r.options.ProjectionURL != "" {
		if o, ok := guardMoved(change, at); ok {
			r.rec.Observe(o)
		}
		return
	}
	if r.options.Projection == flags.Mirror {
		// The mirror keeps no count; the copy of an event that appears is that event to be seen.
		operation, _ := change.Lookup("operationType").StringValueOK()
		if id, ok := change.Lookup("fullDocument", "aggregateId").StringValueOK(); ok && operation == string(envelope.Insert) {
			if r.before.copied[id] < r.before.events[id] {
				r.before.copied[id]++
				return
			}
			r.rec.See(id, 1, at)
		}
		return
	}
	o, ok := witness.Timeline(change, at)
	if before := r.before.events[o.Aggregate]; ok && before > 0 && o.Events >= 0 {
		o.Events = max(o.Events-before, 0)
		ok = o.Events > 0
	}
	if ok {
		r.rec.Observe(o)
	}
}
