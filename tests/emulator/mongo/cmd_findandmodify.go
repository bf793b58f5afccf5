package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func runFindAndModify(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := r.hint(ns, r.get("hint")); err != nil {
		return nil, err
	}
	filter, err := r.doc("query")
	if err != nil {
		return nil, err
	}
	fields, err := r.doc("fields")
	if err != nil {
		return nil, err
	}
	projection, err := query.CompileProjection(fields, r.env)
	if err != nil {
		return nil, err
	}
	remove, update := r.flag("remove"), r.get("update")
	if remove == (update != nil) {
		return nil, mongoerr.New(mongoerr.FailedToParse, "Either an update or remove=true must be specified")
	}
	if sort := r.get("sort"); sort != nil {
		if _, isDoc := sort.(bson.D); !isDoc {
			return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field 'findAndModify.sort' is the wrong type '%s', expected type 'object'", query.TypeName(sort))
		}
	}
	if remove && (r.flag("upsert") || r.flag("new")) {
		return nil, mongoerr.New(mongoerr.FailedToParse, "Cannot specify both upsert or new=true and remove=true")
	}
	last := bson.D{}
	var result bson.Raw
	if remove {
		sel, err := r.selection(filter, r.get("sort"))
		if err != nil {
			return nil, err
		}
		res, err := once(r, 0, func() (engine.WriteResult, error) { return r.srv.eng.Delete(ctx, ns, r.txn, sel, false) })
		if err != nil {
			return nil, err
		}
		last = append(last, bson.E{Key: "n", Value: int32(res.Matched)})
		result = res.Before
	} else {
		spec, err := r.updateSpec(filter, update, r.get("sort"), r.get("arrayFilters"), r.flag("upsert"), false)
		if err != nil {
			return nil, err
		}
		res, err := once(r, 0, func() (engine.WriteResult, error) { return r.srv.eng.Update(ctx, ns, r.txn, spec) })
		if err != nil {
			return nil, err
		}
		n := res.Matched
		if res.UpsertedID != nil {
			n = 1
		}
		last = append(last, bson.E{Key: "n", Value: int32(n)}, bson.E{Key: "updatedExisting", Value: res.Matched > 0})
		if res.UpsertedID != nil {
			last = append(last, bson.E{Key: "upserted", Value: *res.UpsertedID})
		}
		result = res.Before
		if r.flag("new") {
			result = res.After
		}
	}
	var shown any
	if result != nil {
		shown = result
		if projection != nil {
			d, err := value.Decode(result)
			if err != nil {
				return nil, err
			}
			if shown, err = projection.Apply(d); err != nil {
				return nil, err
			}
		}
	}
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: shown}}, nil
}

// refuse names options that are not supported.
func (r *request) refuse(keys ...string) error {
	for _, k := range keys {
		v, ok := value.Get(r.body, k)
		list, isList := v.(bson.A)
		if !ok || v == nil || v == false || (isList && len(list) == 0) {
			continue
		}
		return mongoerr.Unsupported("the %s option %q", r.name, k)
	}
	return nil
}
