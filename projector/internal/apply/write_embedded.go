package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// applyEmbedded writes each group as conditional updates of the aggregate's one document: one
// update in the usual case, and one bulk write, unordered because aggregates do not depend on each
// other, for all groups.
func (a *Applier) applyEmbedded(ctx context.Context, groups []*group) error {
	collection := a.guards.collection
	separately := false
	for conflicts := 0; ; {
		chunks := a.chunksOf(groups)
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
		written, err := collection.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		failed, err := byModel(err)
		if err != nil {
			err = fmt.Errorf("write %s: %w", collection.Name(), err)
			class := Classify(err)
			if class == Transient {
				return err
			}
			// Refused as a whole, for example because it is too large. Sent one by one, the update
			// that is the reason shows.
			switch separately = true; {
			case len(chunks) > 1:
			case class == Unknown:
				chunks[0].group.fails(chunks[0].events, err)
			default:
				chunks[0].group.refused(chunks[0].events, ReasonRefused, err)
			}
			continue
		}
		// An update that creates no document and matches none succeeds without an effect.
		effective := int(written.MatchedCount + written.UpsertedCount)
		silent := effective+len(failed) < len(chunks)
		var collided []*group
		var unseen, passing []chunk
		done := false
		for i, c := range chunks {
			failure, ok := failed[i]
			switch class := classifyWrite(failure.WriteError); {
			case !ok && silent && !c.makes:
				unseen = append(unseen, c)
			case !ok:
				c.committed(false)
				done = true
			case class == Guarded:
				if collided = append(collided, c.group); ambiguousDuplicate(failure.WriteError) {
					c.group.doubt, c.group.doubtful = failure, c.events
				}
			case class == Permanent, class == TooLarge:
				c.group.refused(c.events, ReasonRefused, failure)
			case class == Unknown:
				c.group.fails(c.events, failure)
			default:
				passing, err = append(passing, c), failure
			}
		}
		if err != nil && !done {
			return fmt.Errorf("write %s: %w", collection.Name(), err)
		}
		for _, c := range passing { // others were written, so the database as a whole works
			c.group.fails(c.events, fmt.Errorf("write %s: %w", collection.Name(), err))
		}
		missed, err := a.resolve(ctx, unseen, effective == 0)
		if err != nil {
			return err
		}
		progress, err := a.rebase(ctx, append(collided, missed...))
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

// chunk is one update: the first events of a group.
type chunk struct {
	group  *group
	events int
	model  mongo.WriteModel
	makes  bool // it creates a missing document, and so fails if the condition does not hold
	fills  bool // its effect creates the document, or fills a stub
}

// chunksOf returns the next update of every group that has events left. An event that cannot be
// expressed as an update is poison.
func (a *Applier) chunksOf(groups []*group) []chunk {
	var chunks []chunk
	for _, g := range groups {
		if len(g.events) == 0 {
			continue
		}
		f, n := new(Fold), 0
		for _, e := range g.events {
			if (g.most > 0 && n == g.most) || !f.Add(e.writes) {
				break
			}
			n++
		}
		if n == 0 {
			g.refused(1, ReasonPromise, ErrNotOneUpdate)
			continue
		}
		model, makes := a.modelOf(g, n, f)
		chunks = append(chunks, chunk{group: g, events: n, model: model, makes: makes, fills: f.upsert})
	}
	return chunks
}

// modelOf returns the conditional update for the first n events of a group, folded, and whether it
// creates the document.
func (a *Applier) modelOf(g *group, n int, f *Fold) (model mongo.WriteModel, makes bool) {
	upsert := g.creates(n)
	if f.replacement != nil {
		filter := a.guards.condition(g, n)
		fields, first, whole := a.guards.nextGuard(g, n)
		beside := g.shared || g.guest || (!whole && !g.ignoreVersions) // a part of the guard stays
		if first > 0 && (!beside || g.begins()) {
			fields = append(fields, bson.E{Key: guardFirst, Value: first}) // it replaces the guard's own field
		}
		document := replacementOf(g.aggregate, f)
		if beside {
			return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(replacementUpdate(document, g, fields)).SetUpsert(upsert), upsert
		}
		if g.replay != nil {
			fields = append(fields, bson.E{Key: guardParked, Value: g.replay.raw})
		}
		filter = append(filter, bson.E{Key: a.guards.prefix + guardStreams, Value: bson.D{{Key: "$exists", Value: false}}}) // they would be lost
		document = append(document, bson.E{Key: projection.GuardField, Value: fields})
		if changedByServers(f.replacement) {
			return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(literally(document)).SetUpsert(upsert), upsert
		}
		return mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(document).SetUpsert(upsert), upsert
	}
	ops := f.ops
	if g.stub {
		ops = onStub(f)
	}
	// Without an effect there is nothing to guard: the position moves if there is a document, and
	// none is created.
	makes = f.upsert && upsert
	return a.conditional(g, n, ops, makes), makes
}

// conditional returns the conditional update with which the first n events of a group are applied:
// operators, and the guard. makes: it creates the guard's document if that is missing.
func (a *Applier) conditional(g *group, n int, ops []projection.Op, makes bool) mongo.WriteModel {
	guard, first, _ := a.guards.nextGuard(g, n)
	at := a.guards.at(g.guardSlot)
	switch {
	case first > 0 && g.begins():
		guard = append(guard, bson.E{Key: guardFirst, Value: first})
	case first > 0 && makes:
		ops = append(slices.Clip(ops), projection.SetOnInsert(at+guardFirst, first))
	}
	for i := range guard {
		guard[i].Key = at + guard[i].Key
	}
	return mongo.NewUpdateOneModel().SetFilter(a.guards.condition(g, n)).SetUpdate(updateOf(ops, guard...)).SetUpsert(makes)
}

// replacementOf returns the whole document that a fold puts in place, without its guard.
func replacementOf(aggregate string, f *Fold) bson.D {
	document := bson.D{{Key: "_id", Value: aggregate}}
	elements, _ := f.replacement.Elements()
	for _, e := range elements {
		if e.Key() != "_id" {
			document = append(document, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return document
}

// replacementUpdate returns an update that replaces the document, with the guard's new fields, but
// keeps the guard's other fields: an ordinary replacement would remove the version, without which a
// missing one is not noticed, and the guards of other streams.
func replacementUpdate(document bson.D, g *group, fields bson.D) mongo.Pipeline {
	literal := func(v any) bson.D { return bson.D{{Key: "$literal", Value: v}} }
	path := "$" + projection.GuardField + "."
	stay := []string{guardVersion, guardFirst}
	switch {
	case g.guest:
		stay = append(stay, guardPosition, guardEpoch, guardStream)
	case g.shared:
		stay = append(stay, guardStreams)
	}
	var guard bson.D
	for _, name := range stay {
		if g.guest || !slices.ContainsFunc(fields, func(e bson.E) bool { return e.Key == name }) {
			guard = append(guard, bson.E{Key: name, Value: path + name})
		}
	}
	if g.replay != nil {
		guard = append(guard, bson.E{Key: guardParked, Value: literal(g.replay.raw)})
	}
	if g.guest {
		key := projection.EscapeKey(g.stream)
		streams := path + guardStreams
		guard = append(guard, bson.E{Key: guardStreams, Value: bson.D{{Key: "$mergeObjects", Value: bson.A{
			streams, bson.D{{Key: key, Value: bson.D{{Key: "$mergeObjects", Value: bson.A{streams + "." + key, literal(fields)}}}}},
		}}}})
	} else {
		for _, e := range fields {
			guard = append(guard, bson.E{Key: e.Key, Value: literal(e.Value)})
		}
	}
	return mongo.Pipeline{{{Key: "$replaceWith", Value: bson.D{{Key: "$mergeObjects", Value: bson.A{
		literal(document), bson.D{{Key: projection.GuardField, Value: guard}},
	}}}}}}
}

// onStub returns the operators of a fold for a document that holds nothing but its guard, so that
// they have the same effect as if there were no document.
func onStub(f *Fold) []projection.Op {
	if !f.upsert {
		return nil // nothing is created, and nothing changed
	}
	ops := make([]projection.Op, 0, len(f.ops)+1)
	for _, op := range f.ops {
		if op.Kind == projection.OpSetOnInsert {
			op.Kind = projection.OpSet
		}
		ops = append(ops, op)
	}
	return append(ops, projection.Unset(projection.GuardField+"."+guardEmpty))
}

// updateOf returns operators as an update document, each kind once, in order of first use; set
// joins the $set.
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

// byModel splits a bulk write's error: what failed, by the model's index; or the error itself if it
// concerns the whole.
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

// resolve determines the outcome of updates that may have matched nothing. If there is no document,
// there was nothing to do; if the guard has the position of the update's last change, it was
// written. idle: none of them wrote anything. It returns the remaining groups.
func (a *Applier) resolve(ctx context.Context, unseen []chunk, idle bool) (missed []*group, err error) {
	aggregates := make([]string, len(unseen))
	for i, c := range unseen {
		aggregates[i] = c.group.aggregate
	}
	found, err := a.guards.read(ctx, aggregates...)
	if err != nil {
		return nil, err
	}
	for _, c := range unseen {
		s := found[c.group.aggregate]
		if (!s.exists && c.group.replay == nil && !c.fills) || s.Of(c.group.stream).Position == c.group.events[c.events-1].change.Position {
			c.committed(idle)
		} else {
			missed = append(missed, c.group)
		}
	}
	return missed, nil
}

// committed takes the events off their group. The events after them no longer find a stub.
func (c chunk) committed(idle bool) {
	c.group.committed(c.events, idle)
	c.group.stub = c.group.stub && !c.fills
}
