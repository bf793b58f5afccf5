package build

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrKeyedBy means that a projection's documents have other keys than it declares, so that a sample
// would miss events that write to them.
var ErrKeyedBy = errors.New("correct that key, or leave it out: verify then reads the whole source")

// target is a document to compare, whether it is there or not.
type target struct {
	collection, key string
	id              any
}

// atOnce is how many documents of a sample are compared in one pass, which bounds its queries and
// its memory.
const atOnce = 500

// traceable reports whether the events that write to a document can be found without reading the
// whole source.
func traceable(collections []projection.Collection) bool {
	return !slices.ContainsFunc(collections, func(c projection.Collection) bool { return c.KeyedBy == "" })
}

// draw chooses the documents of a sample. Half of them are those that random documents of the
// source write to: they show what the read model lacks. The others are random documents of the read
// model: they show what it should not have.
func (v *Verifier) draw(ctx context.Context, collections []projection.Collection) ([]target, error) {
	var drawn []target
	known := make(map[string]bool)
	draw := func(collection string, id any) error {
		inner, id, err := memory.Key(id)
		if key := documentKey(collection, inner); err == nil && !known[key] {
			known[key] = true
			drawn = append(drawn, target{collection, key, id})
		}
		return err
	}
	half := (v.Sample + 1) / 2
	err := v.Source.Sample(ctx, half, func(c envelope.Change) error {
		writes, err := apply.Project(v.Projection, c)
		if err == nil {
			err = Keyed(collections, c, writes)
		}
		for i := 0; err == nil && i < len(writes) && int64(len(drawn)) < half; i++ {
			err = draw(writes[i].Target())
		}
		if errors.Is(err, projection.ErrPermanent) || errors.Is(err, memory.ErrRefused) {
			return nil // an event that can never be applied writes nothing
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	n := int64(len(collections))
	each := max((v.Sample-int64(len(drawn))+n-1)/n, 1)
	for _, c := range collections {
		if err := sample(ctx, v.ReadModel.Collection(c.Name), each, bson.D{{Key: "_id", Value: 1}}, func(document bson.Raw) error {
			return draw(c.Name, document.Lookup("_id"))
		}); err != nil {
			return nil, err
		}
	}
	return drawn, nil
}

// sample calls fn with n random documents of a collection, or with all if there are fewer. For less
// than a twentieth of them, the server does not scan the collection.
func sample(ctx context.Context, c *mongo.Collection, n int64, fields bson.D, fn func(bson.Raw) error) error {
	pipeline := mongo.Pipeline{{{Key: "$sample", Value: bson.D{{Key: "size", Value: n}}}}}
	if fields != nil {
		pipeline = append(pipeline, bson.D{{Key: "$project", Value: fields}})
	}
	cursor, err := c.Aggregate(ctx, pipeline, options.Aggregate().SetAllowDiskUse(true))
	if err != nil {
		return fmt.Errorf("read a sample of %s: %w", c.Name(), err)
	}
	return drain(ctx, cursor, "read a sample of "+c.Name(), fn)
}

// focused returns a pass over these documents only. Of the source it reads the events that write to
// them.
func (v *Verifier) focused(collections []projection.Collection, only []target, parked map[string]bool) *pass {
	wanted := make(map[string]bool, len(only))
	for _, t := range only {
		wanted[t.key] = true
	}
	return &pass{Verifier: v, collections: collections, wanted: func(key string) bool { return wanted[key] }, only: only, parked: parked}
}

// parkedAggregates returns the parked aggregates, if a pass over some documents may read only a
// part of an aggregate's events. It returns nil if every document is keyed by the aggregate,
// because all of its events are read then.
func (v *Verifier) parkedAggregates(ctx context.Context, collections []projection.Collection) (map[string]bool, error) {
	if !slices.ContainsFunc(collections, func(c projection.Collection) bool { return c.KeyedBy != projection.ByAggregate }) {
		return nil, nil
	}
	all, err := v.Parked(ctx)
	parked := make(map[string]bool, len(all))
	for _, a := range all {
		parked[a.Name] = true
	}
	return parked, err
}

// ids returns those of the documents to compare, of one collection.
func (p *pass) ids(collection string) bson.A {
	var ids bson.A
	for _, t := range p.only {
		if t.collection == collection {
			ids = append(ids, t.id)
		}
	}
	return ids
}

// feeding returns conditions: each document of the source that writes to a document of this pass
// meets at least one.
func (p *pass) feeding() (conditions []bson.D) {
	for _, c := range p.collections {
		ids := p.ids(c.Name)
		if c.KeyedBy != projection.ByAggregate {
			conditions = append(conditions, oneOf(c.KeyedBy, ids)...)
			continue
		}
		var aggregates []string
		for _, id := range ids {
			if text, ok := id.(string); ok {
				aggregates = append(aggregates, text)
			}
		}
		conditions = append(conditions, p.Source.of(aggregates)...)
	}
	return conditions
}

// Keyed checks the writes of one insert: they must go to the documents that the projection's
// KeyedBy leads to. Errors: [ErrKeyedBy].
func Keyed(collections []projection.Collection, c envelope.Change, writes []projection.Write) error {
	for _, w := range writes {
		collection, id := w.Target()
		for _, declared := range collections {
			if declared.Name != collection || declared.KeyedBy == "" {
				continue
			}
			var want any = c.Aggregate
			if declared.KeyedBy != projection.ByAggregate {
				want = at(c.Document(), declared.KeyedBy)
			}
			wanted, _, err := memory.Key(want)
			if key, _, _ := memory.Key(id); err != nil || key != wanted {
				is := "is not in the event"
				if value, found := want.(bson.RawValue); !found || value.Type != 0 {
					is = "is " + memory.Text(want) + " in the event"
				}
				return fmt.Errorf("%s is declared as keyed by %q, which %s, and the event writes to document %s: %w",
					collection, declared.KeyedBy, is, memory.Text(id), ErrKeyedBy)
			}
		}
	}
	return nil
}
