package apply

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

const embeddedGuard = projection.GuardField + ".position"

// applyEmbedded writes each group as conditional updates of the aggregate's one document: one update in the usual case,
// and one bulk write, unordered because aggregates do not depend on each other, for all groups.
func (a *Applier) applyEmbedded(ctx context.Context, collection *mongo.Collection, groups []*group, results []Result) error {
	separately := false
	for conflicts := 0; ; {
		chunks := chunksOf(groups, results)
		if len(chunks) == 0 {
			return nil
		}
		if separately {
			chunks = chunks[:1]
		}
		models := make([]mongo.WriteModel, len(chunks))
		for i, c := range chunks {
			models[i] = c.model
		}
		_, err := collection.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		failed, err := byModel(err)
		if err != nil {
			err = fmt.Errorf("write %s: %w", collection.Name(), err)
			if Classify(err) != Permanent {
				return err
			}
			// Refused as a whole: too large, for example. Which update is meant shows when each goes alone.
			if separately = true; len(chunks) == 1 {
				chunks[0].group.refused(chunks[0].events, ReasonRefused, err, results)
			}
			continue
		}
		var collided []*group
		for i, c := range chunks {
			failure, ok := failed[i]
			switch class := classifyWrite(failure.WriteError); {
			case !ok:
				c.group.done(c.events, results)
			case class == Guarded:
				collided = append(collided, c.group)
			case class == Permanent:
				c.group.refused(c.events, ReasonRefused, failure, results)
			default:
				err = failure
			}
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", collection.Name(), err)
		}
		progress, err := rebase(ctx, collection, embeddedGuard, collided, results)
		if err != nil {
			return err
		}
		if !progress {
			if conflicts++; conflicts > maxConflicts {
				return errContended
			}
		}
	}
}

// rebase reads the guards of the groups whose guard did not match and drops what turns out to be applied already. It
// says whether it learned anything for every one of them.
func rebase(ctx context.Context, collection *mongo.Collection, field string, collided []*group, results []Result) (bool, error) {
	if len(collided) == 0 {
		return true, nil
	}
	aggregates := make([]string, len(collided))
	for i, g := range collided {
		aggregates[i] = g.aggregate
	}
	found, err := positions(ctx, collection, field, aggregates)
	if err != nil {
		return false, err
	}
	progress := true
	for _, g := range collided {
		position, exists := found[g.aggregate]
		unguarded := exists && position == ""
		if g.drop(position, results) == 0 && unguarded == g.unguarded {
			progress = false
		}
		g.unguarded = unguarded
	}
	return progress, nil
}

// byModel takes a bulk write's error apart: what failed, by the model's index; or the error itself when it is about
// the whole.
func byModel(err error) (map[int]mongo.BulkWriteError, error) {
	if err == nil {
		return nil, nil
	}
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || bulk.WriteConcernError != nil || len(bulk.WriteErrors) == 0 {
		return nil, err
	}
	failed := make(map[int]mongo.BulkWriteError, len(bulk.WriteErrors))
	for _, e := range bulk.WriteErrors {
		failed[e.Index] = e
	}
	return failed, nil
}

// chunk is one update: the first events of a group.
type chunk struct {
	group  *group
	events int
	model  mongo.WriteModel
}

// chunksOf is the next update of every group that has events left. An event that cannot be said as an update at all is
// poison.
func chunksOf(groups []*group, results []Result) []chunk {
	var chunks []chunk
	for _, g := range groups {
		if len(g.events) == 0 {
			continue
		}
		f, n := newFold(), 0
		for _, e := range g.events {
			if (n > 0 && g.oneByOne) || !f.add(e.writes) {
				break
			}
			n++
		}
		if n == 0 {
			err := broken("the writes of one event cannot be said as one update: they write to the same field in ways that exclude each other")
			g.refused(1, ReasonPromise, err, results)
			continue
		}
		chunks = append(chunks, chunk{group: g, events: n, model: modelOf(g, n, f)})
	}
	return chunks
}

// modelOf is the conditional update for the first n events of a group, folded.
func modelOf(g *group, n int, f *fold) mongo.WriteModel {
	last := g.events[n-1].change
	filter := below(g.aggregate, embeddedGuard, g.events[0].change, g.unguarded)
	guard := bson.E{Key: projection.GuardField, Value: guardOf(last)}
	if f.replacement != nil {
		replacement := make(bson.D, 0, 8)
		replacement = append(replacement, bson.E{Key: "_id", Value: g.aggregate})
		elements, _ := f.replacement.Elements()
		for _, e := range elements {
			if e.Key() != "_id" {
				replacement = append(replacement, bson.E{Key: e.Key(), Value: e.Value()})
			}
		}
		return mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(append(replacement, guard)).SetUpsert(true)
	}
	// Without an effect there is nothing to guard: the position moves where there is a document, and none is made.
	return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(updateOf(f.ops, guard)).SetUpsert(f.upsert)
}

// updateOf says operators as an update document, each kind once, in order of first use; set joins the $set.
func updateOf(ops []projection.Op, set ...bson.E) bson.D {
	var update bson.D
	at := make(map[projection.OpKind]int)
	put := func(kind projection.OpKind, e bson.E) {
		i, ok := at[kind]
		if !ok {
			i = len(update)
			at[kind] = i
			update = append(update, bson.E{Key: string(kind), Value: bson.D{}})
		}
		update[i].Value = append(update[i].Value.(bson.D), e)
	}
	for _, op := range ops {
		put(op.Kind, bson.E{Key: op.Field, Value: op.Value})
	}
	for _, e := range set {
		put(projection.OpSet, e)
	}
	return update
}
