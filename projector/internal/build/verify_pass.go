package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// part returns a hash that spreads documents over passes.
func part(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash takes everything
	return h.Sum64()
}

// pass is one comparison of a part of the documents. It reads the source first, then the read
// model.
type pass struct {
	*Verifier
	collections []projection.Collection
	wanted      func(key string) bool
	// only, unless nil, are the wanted documents. Only they, and the events that write to them, are
	// read then.
	only []target
	// parked are the parked aggregates, and halfway those of them of which this pass has read an
	// event. It must read all of their events, because those after a poison event are not applied.
	parked, halfway map[string]bool
	// traced is set to keep the aggregates that write to each wanted document.
	traced bool

	store    memory.Store
	unknown  map[string]bool
	unheld   map[string]bool             // the fields that get what the source does not hold
	feeds    map[string]map[string]int64 // by document: its aggregates, each with its last version
	events   int64
	poison   int64
	refusal  string // why the first poison event cannot be applied
	compared int64
	found    []Finding

	current string // the aggregate that is being read
	stopped bool   // at a poison event that parked it
}

// documentKey identifies a document among those of all collections.
func documentKey(collection, key string) string { return collection + "\x00" + key }

func (p *pass) run(ctx context.Context) error {
	if err := p.recompute(ctx); err != nil {
		return err
	}
	for _, c := range p.collections {
		filter := bson.D{}
		if p.only != nil {
			ids := p.ids(c.Name)
			if len(ids) == 0 {
				continue
			}
			filter = oneOf("_id", ids)[0]
		}
		if err := p.compare(ctx, c.Name, filter); err != nil {
			return err
		}
	}
	return nil
}

// recompute projects the events of the source to documents in memory.
func (p *pass) recompute(ctx context.Context) error {
	applyEvent := func(c envelope.Change) error { return p.applyEvent(ctx, c) }
	if p.only == nil {
		p.reset()
		return p.Source.each(ctx, bson.D{}, applyEvent)
	}
	p.halfway = make(map[string]bool)
	for {
		met := slices.Collect(maps.Keys(p.halfway))
		p.reset()
		if conditions := append(p.feeding(), p.Source.of(met)...); len(conditions) > 0 {
			if err := p.Source.each(ctx, bson.D{{Key: "$or", Value: conditions}}, applyEvent); err != nil {
				return err
			}
		}
		if len(p.halfway) == len(met) {
			return nil
		}
	}
}

// reset drops what was read.
func (p *pass) reset() {
	p.store, p.events, p.poison, p.current, p.stopped = memory.Store{}, 0, 0, "", false
	p.unknown, p.unheld, p.feeds = make(map[string]bool), make(map[string]bool), make(map[string]map[string]int64)
}

// applyEvent applies one event of the source to the documents in memory.
func (p *pass) applyEvent(ctx context.Context, c envelope.Change) error {
	p.events++
	p.passed()
	if p.parked[c.Aggregate] {
		p.halfway[c.Aggregate] = true
	}
	if c.Aggregate != p.current {
		p.current, p.stopped = c.Aggregate, false
	}
	if p.stopped {
		return nil
	}
	writes, err := apply.Project(p.Projection, guess(c, false))
	if err == nil {
		var other []projection.Write
		if other, err = apply.Project(p.Projection, guess(c, true)); err == nil && !memory.Same(writes, other) {
			return p.unknowable(writes, other)
		}
	}
	if err == nil {
		err = p.write(c, writes)
	}
	if errors.Is(err, projection.ErrPermanent) || errors.Is(err, memory.ErrRefused) {
		p.poison++
		p.refusal = cmp.Or(p.refusal, err.Error())
		// The later ones have been applied only if an operator has dropped the event.
		guards, err := p.Guards(ctx, c.Aggregate)
		p.stopped = guards[c.Aggregate].Parked != nil
		return err
	}
	return err
}

func (p *pass) write(c envelope.Change, writes []projection.Write) error {
	if p.only != nil {
		if err := Keyed(p.collections, c, writes); err != nil {
			return err
		}
	}
	for _, w := range writes {
		key, ok, err := p.target(w)
		if err != nil {
			return err
		}
		if !ok || p.unknown[key] {
			continue
		}
		if err := p.store.Apply(w); errors.Is(err, memory.ErrUnsupported) {
			p.unknown[key] = true
		} else if err != nil {
			return err
		}
		if p.traced {
			if p.feeds[key] == nil {
				p.feeds[key] = make(map[string]int64)
			}
			p.feeds[key][c.Aggregate] = max(p.feeds[key][c.Aggregate], c.Version)
		}
	}
	return nil
}

// target returns the key of the document that a write goes to; ok is false if this pass does not
// compare the document.
func (p *pass) target(w projection.Write) (key string, ok bool, err error) {
	collection, id := w.Target()
	inner, _, err := memory.Key(id)
	if err != nil {
		return "", false, err
	}
	key = documentKey(collection, inner)
	return key, p.wanted(key), nil
}

// unknowable records the documents of an event whose writes depend on what the source does not
// hold, and which fields do.
func (p *pass) unknowable(writes, other []projection.Write) error {
	one, two := operators(writes), operators(other)
	for _, pair := range [2][2]map[string]string{{one, two}, {two, one}} {
		for op, field := range pair[0] {
			if _, same := pair[1][op]; !same {
				p.unheld[field] = true
			}
		}
	}
	for _, writes := range [2][]projection.Write{writes, other} {
		for _, w := range writes {
			key, ok, err := p.target(w)
			if err != nil {
				return err
			}
			if ok {
				p.unknown[key] = true
			}
		}
	}
	return nil
}

// operators returns the operators of updates, each as text with its field.
func operators(writes []projection.Write) map[string]string {
	all := make(map[string]string)
	for _, w := range writes {
		if update, ok := w.(projection.UpdateOne); ok {
			for _, op := range update.Ops {
				all[fmt.Sprintf("%#v", op)] = op.Field
			}
		}
	}
	return all
}

// compare compares one collection of the read model with the documents in memory.
func (p *pass) compare(ctx context.Context, collection string, filter bson.D) error {
	cursor, err := p.ReadModel.Collection(collection).Find(ctx, filter)
	if err != nil {
		return fmt.Errorf("read %s: %w", collection, err)
	}
	seen := make(map[string]bool)
	if err := drain(ctx, cursor, "read "+collection, func(raw bson.Raw) error {
		return p.compareDocument(collection, raw, seen)
	}); err != nil {
		return err
	}
	for inner, want := range p.store.All(collection) {
		key := documentKey(collection, inner)
		if seen[inner] || p.unknown[key] {
			continue
		}
		p.compared++
		p.found = append(p.found, Finding{
			Collection: collection, ID: memory.Text(want[0].Value), Differences: []string{"is missing"},
			target: target{collection, key, want[0].Value},
		})
	}
	return nil
}

// compareDocument compares one document of the read model with the one in memory.
func (p *pass) compareDocument(collection string, raw bson.Raw, seen map[string]bool) error {
	p.passed()
	inner, id, err := memory.Key(raw.Lookup("_id"))
	if err != nil {
		return fmt.Errorf("read %s: %w", collection, err)
	}
	key := documentKey(collection, inner)
	if !p.wanted(key) || apply.Stub(raw) {
		return nil
	}
	var got bson.D
	if err := bson.Unmarshal(raw, &got); err != nil {
		return fmt.Errorf("read document %s of %s: %w", memory.Text(id), collection, err)
	}
	seen[inner] = true
	if p.unknown[key] {
		return nil
	}
	p.compared++
	differences := []string{"exists, but no event of the source creates it"}
	if want, expected := p.store.ByKey(collection, inner); expected {
		differences = memory.Diff(want, slices.DeleteFunc(got, func(e bson.E) bool { return e.Key == projection.GuardField }))
	}
	if len(differences) > 0 {
		p.found = append(p.found, Finding{
			Collection: collection, ID: memory.Text(id), Differences: differences,
			target: target{collection, key, id}, state: part(string(raw)),
		})
	}
	return nil
}
