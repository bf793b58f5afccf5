package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

type bulkTotals struct{ errors, inserted, matched, modified, upserted, deleted int }

func runBulkWrite(ctx context.Context, r *request) (bson.D, error) {
	if r.db != "admin" {
		return nil, mongoerr.New(mongoerr.Unauthorized, "bulkWrite may only be run against the admin database.")
	}
	ops, err := r.list("ops")
	if err != nil {
		return nil, err
	}
	if err := checkBatch(len(ops)); err != nil {
		return nil, err
	}
	spaces, err := r.bulkNamespaces()
	if err != nil {
		return nil, err
	}
	if err := r.checkBulk(ops, len(spaces)); err != nil {
		return nil, err
	}
	var total bulkTotals
	var results []bson.Raw
	for i, raw := range ops {
		res, err := r.bulkOnce(ctx, i, raw, spaces, &total)
		if err != nil {
			if fatal(ctx, r, err) {
				return nil, err
			}
			e := mongoerr.From(err)
			total.errors++
			d := bson.D{{Key: "ok", Value: 0.0}, {Key: "idx", Value: int32(i)}, {Key: "code", Value: e.Code}, {Key: "errmsg", Value: e.Msg}}
			results = append(results, value.Encode(append(append(d, e.Extra...), bson.E{Key: "n", Value: int32(0)})))
			if r.ordered() || r.multi {
				break
			}
			continue
		}
		if !r.flag("errorsOnly") {
			results = append(results, value.Encode(append(bson.D{{Key: "ok", Value: 1.0}, {Key: "idx", Value: int32(i)}}, res...)))
		}
	}
	opts, err := r.doc("cursor")
	if err != nil {
		return nil, err
	}
	reply, err := r.openCursor("admin.$cmd.bulkWrite", results, opts)
	return append(reply, bson.D{
		{Key: "nErrors", Value: int32(total.errors)},
		{Key: "nInserted", Value: int32(total.inserted)},
		{Key: "nMatched", Value: int32(total.matched)},
		{Key: "nModified", Value: int32(total.modified)},
		{Key: "nUpserted", Value: int32(total.upserted)},
		{Key: "nDeleted", Value: int32(total.deleted)},
	}...), err
}

// bulkDone is the result of a statement of a bulkWrite.
type bulkDone struct {
	reply bson.D
	total bulkTotals
}

func (r *request) bulkOnce(ctx context.Context, i int, raw bson.Raw, spaces []engine.NS, total *bulkTotals) (bson.D, error) {
	var partly bulkTotals // of a statement that failed
	done, err := once(r, i, func() (bulkDone, error) {
		var d bulkDone
		var err error
		d.reply, err = r.bulkOp(ctx, raw, spaces, &d.total)
		if err != nil {
			partly = d.total
		}
		return d, err
	})
	if err != nil {
		done.total = partly
	}
	total.inserted += done.total.inserted
	total.matched += done.total.matched
	total.modified += done.total.modified
	total.upserted += done.total.upserted
	total.deleted += done.total.deleted
	return done.reply, err
}

func (r *request) bulkNamespaces() ([]engine.NS, error) {
	infos, err := r.list("nsInfo")
	if err != nil {
		return nil, err
	}
	var out []engine.NS
	for _, raw := range infos {
		d, err := r.statement(raw, "bulkWrite.nsInfo", "ns")
		if err != nil {
			return nil, err
		}
		full, _ := field(d, "ns").(string)
		ns, err := parseNS(full)
		if err != nil {
			return nil, err
		}
		out = append(out, ns)
	}
	return out, nil
}

// bulkFields are the fields of an operation and their types; no type means any.
var bulkFields = map[string][]string{
	"insert": {"int", "long", "double", "decimal"}, "update": {"int", "long", "double", "decimal"}, "delete": {"int", "long", "double", "decimal"},
	"document": {"object"}, "filter": {"object"}, "updateMods": {"object", "array"}, "multi": {"bool"}, "upsert": {"bool"}, "collation": {"object"},
	"arrayFilters": {"array"}, "hint": {}, "sort": {"object"},
}

// checkBulk refuses the command for one malformed operation, before any is run.
func (r *request) checkBulk(ops []bson.Raw, spaces int) error {
	all, err := r.statements(ops, "bulkWrite.ops", bulkFields)
	if err != nil {
		return err
	}
	for _, d := range all {
		if len(d) == 0 {
			return mongoerr.New(mongoerr.FailedToParse, "an empty bulkWrite operation")
		}
		if at, ok := value.AsInt(d[0].Value); !ok || at < 0 || at >= int64(spaces) {
			return mongoerr.New(mongoerr.BadValue, "BulkWrite ops entry %v has an invalid nsInfo index.", d[0].Value)
		}
		stages, _ := field(d, "updateMods").(bson.A)
		if err := query.CheckStages(stages); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) bulkOp(ctx context.Context, raw bson.Raw, spaces []engine.NS, total *bulkTotals) (bson.D, error) {
	d, err := value.Decode(raw)
	if err != nil {
		return nil, err
	}
	at, _ := value.AsInt(d[0].Value) // checkBulk has seen to the rest
	ns := spaces[at]
	if err := r.hint(ns, field(d, "hint")); err != nil {
		return nil, err
	}
	if r.env.Collation, err = query.ParseCollation(field(d, "collation")); err != nil {
		return nil, err
	}
	switch d[0].Key {
	case "insert":
		return r.bulkInsert(ctx, ns, raw, total)
	case "update":
		multi := field(d, "multi") == true
		spec, err := r.updateSpec(field(d, "filter"), field(d, "updateMods"), field(d, "sort"), field(d, "arrayFilters"), field(d, "upsert") == true, multi)
		if err != nil {
			return nil, err
		}
		res, err := r.srv.eng.Update(ctx, ns, r.txn, spec)
		total.matched += res.Matched
		total.modified += res.Modified
		if err != nil {
			return nil, err
		}
		if res.UpsertedID != nil {
			total.upserted++
			return bson.D{{Key: "n", Value: int32(1)}, {Key: "nModified", Value: int32(0)}, {Key: "upserted", Value: bson.D{{Key: "_id", Value: *res.UpsertedID}}}}, nil
		}
		return bson.D{{Key: "n", Value: int32(res.Matched)}, {Key: "nModified", Value: int32(res.Modified)}}, nil
	case "delete":
		multi := field(d, "multi") == true
		if r.numbered && !r.multi && multi {
			return nil, mongoerr.New(mongoerr.InvalidOptions, "Cannot use retryable writes with multi=true")
		}
		sel, err := r.selection(field(d, "filter"), nil)
		if err != nil {
			return nil, err
		}
		res, err := r.srv.eng.Delete(ctx, ns, r.txn, sel, multi)
		total.deleted += res.Matched
		return bson.D{{Key: "n", Value: int32(res.Matched)}}, err
	}
	return nil, mongoerr.New(mongoerr.FailedToParse, "unknown bulkWrite operation %q", d[0].Key)
}

func (r *request) bulkInsert(ctx context.Context, ns engine.NS, raw bson.Raw, total *bulkTotals) (bson.D, error) {
	rv, ok := value.RawField(raw, "document")
	if !ok || rv.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(mongoerr.MissingField, "BSON field 'insert.document' is missing but a required field")
	}
	doc, err := r.storable(bson.Raw(rv.Value))
	if err != nil {
		return nil, err
	}
	var failed error
	n, err := r.srv.eng.Insert(ctx, ns, r.txn, []bson.Raw{doc}, true, func(_ int, err error) { failed = err })
	if err == nil {
		err = failed
	}
	total.inserted += n
	return bson.D{{Key: "n", Value: int32(n)}}, err
}
