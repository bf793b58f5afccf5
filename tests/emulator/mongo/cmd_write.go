package mongo

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// maxWriteBatch is how many statements one command may carry, as hello announces.
const maxWriteBatch = 100_000

// writeErrors collects what failed, in the shape of a reply.
type writeErrors []bson.D

func (w *writeErrors) add(i int, err error) {
	e := mongoerr.From(err)
	d := bson.D{{Key: "index", Value: int32(i)}, {Key: "code", Value: e.Code}}
	d = append(d, e.Extra...)
	*w = append(*w, append(d, bson.E{Key: "errmsg", Value: e.Msg}))
}

func hasWriteErrors(reply bson.D) bool {
	_, ok := value.Get(reply, "writeErrors")
	if n, has := value.Get(reply, "nErrors"); has && n != int32(0) {
		return true
	}
	return ok
}

// fatal distinguishes errors that fail the whole command from those of one statement.
func fatal(ctx context.Context, r *request, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	code := mongoerr.From(err).Code
	return code == mongoerr.InternalError || (r.multi && (slices.Contains(retriable, code) || slices.Contains(transient, code)))
}

func (r *request) ordered() bool {
	v, ok := value.Get(r.body, "ordered")
	return !ok || v != false
}

func checkBatch(n int) error {
	if n == 0 || n > maxWriteBatch {
		return mongoerr.New(16, "Write batch sizes must be between 1 and %d. Got %d operations.", maxWriteBatch, n)
	}
	return nil
}

func writeReply(n int, more bson.D, errs writeErrors) bson.D {
	d := append(bson.D{{Key: "n", Value: int32(n)}}, more...)
	if len(errs) > 0 {
		d = append(d, bson.E{Key: "writeErrors", Value: []bson.D(errs)})
	}
	return d
}

// storable checks a document a client sends to be stored, puts _id first and fills in its empty
// timestamps.
func (r *request) storable(raw bson.Raw) (bson.Raw, error) {
	if len(raw) > value.MaxDocument {
		code := int32(mongoerr.BSONObjectTooLarge)
		if r.env.Version[0] < 5 {
			code = mongoerr.BadValue
		}
		return nil, mongoerr.New(code, "object to insert too large. size in bytes: %d, max size: %d", len(raw), value.MaxDocument)
	}
	if err := raw.Validate(); err != nil {
		return nil, mongoerr.New(22, "Invalid BSON: %v", err)
	}
	if value.TooDeep(raw) {
		return nil, mongoerr.New(mongoerr.Overflow, "cannot insert document because it exceeds %d levels of nesting", value.MaxStoredDepth)
	}
	if r.env.Version[0] < 5 {
		if err := dollars(raw); err != nil {
			return nil, err
		}
	}
	if err := checkID(raw); err != nil {
		return nil, err
	}
	first, err := raw.IndexErr(0)
	if err == nil && first.Key() == "_id" && !hasEmptyTimestamp(raw) {
		return raw, nil
	}
	d, err := value.Decode(raw)
	if err != nil {
		return nil, err
	}
	query.FillTimestamps(d, r.env)
	return value.Encode(engine.WithID(d)), nil
}

// checkID refuses an _id with names that begin with $, at any depth, except for those of a DBRef.
func checkID(raw bson.Raw) error {
	id, ok := value.RawField(raw, "_id")
	if !ok || id.Type != bson.TypeEmbeddedDocument {
		return nil
	}
	v, _, err := value.DecodeValue(id.Type, id.Value)
	if name, found := query.DollarName(v); found {
		return mongoerr.New(mongoerr.DollarPrefixedFieldName, "_id fields may not contain '$'-prefixed fields: %s is not valid for storage.", name)
	}
	return err
}

// dollars refuses what servers before 5.0 do not store.
func dollars(raw bson.Raw) error {
	elements, err := raw.Elements()
	for _, e := range elements {
		if strings.HasPrefix(e.Key(), "$") {
			return mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", e.Key(), e.Key())
		}
	}
	return err
}

// hasEmptyTimestamp checks the top level only, of a valid document.
func hasEmptyTimestamp(raw bson.Raw) bool {
	for rest := raw[4:]; len(rest) > 1; {
		element, left, ok := bsoncore.ReadElement(rest)
		if !ok {
			return false
		}
		if v := element.Value(); v.Type == bsoncore.TypeTimestamp && bytes.Equal(v.Data, make([]byte, 8)) {
			return true
		}
		rest = left
	}
	return false
}

func runInsert(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := engine.CheckName(ns); err != nil {
		return nil, err
	}
	docs, err := r.list("documents")
	if err != nil {
		return nil, err
	}
	if err := checkBatch(len(docs)); err != nil {
		return nil, err
	}
	var errs writeErrors
	good := make([]bson.Raw, 0, len(docs))
	index := make([]int, 0, len(docs))
	before := 0 // inserted by an earlier attempt
	for i, d := range docs {
		if r.ran(i) {
			before++
			continue
		}
		raw, err := r.storable(d)
		if err != nil {
			errs.add(i, err)
			if r.ordered() {
				break
			}
			continue
		}
		good, index = append(good, raw), append(index, i)
	}
	stopped := false
	n, err := r.insertAll(ctx, ns, good, index, func(i int, err error) {
		stopped = true
		if r.ordered() {
			errs = nil // what came before the batch's first failure never ran
		}
		errs.add(index[i], err)
	})
	if err != nil {
		if fatal(ctx, r, err) {
			return nil, err
		}
		errs = nil
		errs.add(index[min(n, len(index)-1)], err)
	}
	n += before
	if !stopped && r.ordered() && len(errs) > 1 {
		errs = errs[:1]
	}
	slices.SortStableFunc(errs, func(a, b bson.D) int { return int(a[0].Value.(int32) - b[0].Value.(int32)) })
	return writeReply(n, nil, errs), nil
}

// selection compiles a filter.
func (r *request) selection(filter any, sort any) (engine.Selection, error) {
	f, ok := filter.(bson.D)
	if !ok {
		return engine.Selection{}, mongoerr.New(mongoerr.TypeMismatch, "the filter has to be a document")
	}
	m, err := query.Compile(f, r.env)
	if err != nil {
		return engine.Selection{}, err
	}
	s := engine.Selection{Filter: f, Matcher: m, Collation: r.env.Collation}
	if d, ok := sort.(bson.D); ok && len(d) > 0 {
		if s.Sort, err = query.CompileSort(d); err != nil {
			return engine.Selection{}, err
		}
		s.Sort.Collate(r.env.Collation)
	}
	return s, nil
}

// statements reads the entries of updates or deletes. One that is malformed fails the command,
// before any is run.
func (r *request) statements(list []bson.Raw, name string, types map[string][]string, required ...string) ([]bson.D, error) {
	out := make([]bson.D, len(list))
	for i, raw := range list {
		d, err := r.statement(raw, name, slices.Sorted(maps.Keys(types))...)
		if err != nil {
			return nil, err
		}
		for _, e := range d {
			if is := query.TypeName(e.Value); len(types[e.Key]) > 0 && !slices.Contains(types[e.Key], is) {
				return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type '%s'", name, e.Key, is, types[e.Key][0])
			}
		}
		for _, key := range required {
			if _, has := value.Get(d, key); !has {
				return nil, mongoerr.New(mongoerr.MissingField, "BSON field '%s.%s' is missing but a required field", name, key)
			}
		}
		out[i] = d
	}
	return out, nil
}

// The fields of statements and their types; no type means any.
var (
	updateFields = map[string][]string{
		"q": {"object"}, "u": {"object", "array"}, "c": {"object"}, "multi": {"bool"}, "upsert": {"bool"}, "collation": {"object"},
		"arrayFilters": {"array"}, "hint": {}, "sort": {"object"},
	}
	deleteFields = map[string][]string{"q": {"object"}, "limit": {"int", "long", "double", "decimal"}, "collation": {"object"}, "hint": {}}
)

// statement reads one entry of updates, deletes or ops and refuses unknown fields.
func (r *request) statement(raw bson.Raw, name string, known ...string) (bson.D, error) {
	d, err := value.Decode(raw)
	if err != nil {
		return nil, err
	}
	for _, e := range d {
		if err := r.known(name + "." + e.Key); err != nil {
			return nil, err
		}
		if !slices.Contains(known, e.Key) {
			return nil, mongoerr.New(mongoerr.UnknownField, "BSON field '%s.%s' is an unknown field (or not supported by the embedded MongoDB).", name, e.Key)
		}
	}
	return d, nil
}

func field(d bson.D, key string) any {
	v, _ := value.Get(d, key)
	return v
}

func (r *request) updateSpec(filter, u, sort, arrayFilters any, upsert, multi bool) (engine.UpdateSpec, error) {
	sel, err := r.selection(filter, sort)
	if err != nil {
		return engine.UpdateSpec{}, err
	}
	up, err := query.CompileUpdate(u, r.env)
	if err != nil {
		return engine.UpdateSpec{}, err
	}
	filters, ok := arrayFilters.(bson.A)
	if arrayFilters != nil && !ok {
		return engine.UpdateSpec{}, mongoerr.New(mongoerr.TypeMismatch, "arrayFilters must be an array")
	}
	if err := up.Positional(sel.Filter, filters); err != nil {
		return engine.UpdateSpec{}, err
	}
	if multi && up.IsReplacement() {
		return engine.UpdateSpec{}, mongoerr.New(mongoerr.FailedToParse, "multi update is not supported for replacement-style update")
	}
	if r.numbered && !r.multi && multi {
		return engine.UpdateSpec{}, mongoerr.New(mongoerr.InvalidOptions, "Cannot use retryable writes with multi=true")
	}
	return engine.UpdateSpec{Selection: sel, Update: up, Upsert: upsert, Multi: multi}, nil
}

func runUpdate(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := engine.CheckName(ns); err != nil {
		return nil, err
	}
	list, err := r.list("updates")
	if err != nil {
		return nil, err
	}
	if err := checkBatch(len(list)); err != nil {
		return nil, err
	}
	updates, err := r.statements(list, "update.updates", updateFields, "q", "u")
	if err != nil {
		return nil, err
	}
	for _, d := range updates {
		stages, _ := field(d, "u").(bson.A)
		if err := query.CheckStages(stages); err != nil {
			return nil, err
		}
	}
	var errs writeErrors
	var upserted []bson.D
	n, modified := 0, 0
	for i, d := range updates {
		res, err := once(r, i, func() (engine.WriteResult, error) { return r.updateOne(ctx, ns, d) })
		if err != nil {
			if fatal(ctx, r, err) {
				return nil, err
			}
			errs.add(i, err)
		}
		n, modified = n+res.Matched, modified+res.Modified
		if res.UpsertedID != nil {
			n++
			upserted = append(upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: *res.UpsertedID}})
		}
		if err != nil && (r.ordered() || r.multi) {
			break
		}
	}
	more := bson.D{}
	if len(upserted) > 0 {
		more = append(more, bson.E{Key: "upserted", Value: upserted})
	}
	more = append(more, bson.E{Key: "nModified", Value: int32(modified)})
	return writeReply(n, more, errs), nil
}

func (r *request) updateOne(ctx context.Context, ns engine.NS, d bson.D) (_ engine.WriteResult, err error) {
	if err := r.hint(ns, field(d, "hint")); err != nil {
		return engine.WriteResult{}, err
	}
	if r.env.Collation, err = query.ParseCollation(field(d, "collation")); err != nil {
		return engine.WriteResult{}, err
	}
	if constants, ok := field(d, "c").(bson.D); ok {
		if _, pipeline := field(d, "u").(bson.A); !pipeline {
			return engine.WriteResult{}, mongoerr.New(51198, "Constant values may only be specified for pipeline updates")
		}
		env := *r.env
		defer func(before *query.Env) { r.env = before }(r.env)
		r.env, env.Vars = &env, append(slices.Clone(env.Vars), constants...)
	}
	spec, err := r.updateSpec(field(d, "q"), field(d, "u"), field(d, "sort"), field(d, "arrayFilters"), field(d, "upsert") == true, field(d, "multi") == true)
	if err != nil {
		return engine.WriteResult{}, err
	}
	return r.srv.eng.Update(ctx, ns, r.txn, spec)
}

func runDelete(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	list, err := r.list("deletes")
	if err != nil {
		return nil, err
	}
	if err := checkBatch(len(list)); err != nil {
		return nil, err
	}
	deletes, err := r.statements(list, "delete.deletes", deleteFields, "q", "limit")
	if err != nil {
		return nil, err
	}
	for _, d := range deletes {
		if limit, ok := value.AsInt(field(d, "limit")); !ok || (limit != 0 && limit != 1) {
			return nil, mongoerr.New(mongoerr.FailedToParse, "The limit field in delete objects must be 0 or 1. Got %v", field(d, "limit"))
		}
	}
	var errs writeErrors
	n := 0
	for i, d := range deletes {
		res, err := once(r, i, func() (engine.WriteResult, error) { return r.deleteOne(ctx, ns, d) })
		n += res.Matched
		if err == nil {
			continue
		}
		if fatal(ctx, r, err) {
			return nil, err
		}
		errs.add(i, err)
		if r.ordered() || r.multi {
			break
		}
	}
	return writeReply(n, nil, errs), nil
}

func (r *request) deleteOne(ctx context.Context, ns engine.NS, d bson.D) (_ engine.WriteResult, err error) {
	if err := r.hint(ns, field(d, "hint")); err != nil {
		return engine.WriteResult{}, err
	}
	if r.env.Collation, err = query.ParseCollation(field(d, "collation")); err != nil {
		return engine.WriteResult{}, err
	}
	limit, _ := value.AsInt(field(d, "limit"))
	if r.numbered && !r.multi && limit == 0 {
		return engine.WriteResult{}, mongoerr.New(mongoerr.InvalidOptions, "Cannot use retryable writes with limit=0")
	}
	sel, err := r.selection(field(d, "q"), nil)
	if err != nil {
		return engine.WriteResult{}, err
	}
	return r.srv.eng.Delete(ctx, ns, r.txn, sel, limit == 0)
}
