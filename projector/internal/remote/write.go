package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// The writes of the protocol, which are those of package projection.
const (
	writeUpdate         = "update"
	writeUpdateExisting = "updateExisting"
	writeReplace        = "replace"
	writeDelete         = "delete"
)

// readWrite reads one write.
func readWrite(n node) (projection.Write, error) {
	o := n.object("a write")
	kind, collection := o.text("write"), strings.Clone(o.text("collection"))
	id, err := readValue(o.need("id"))
	if o.err == nil && err != nil {
		o.fail("has a wrong id: %v", err)
	}
	if o.err != nil {
		return nil, o.err
	}
	o.kind, o.name = kind, collection
	switch kind {
	case writeUpdate, writeUpdateExisting:
		w := projection.UpdateOne{Collection: collection, ID: id, Upsert: kind == writeUpdate, InOrder: o.flag("inOrder")}
		ops := o.list("ops")
		if len(ops) > 0 {
			w.Ops = make([]projection.Op, len(ops))
		}
		for i, each := range ops {
			if w.Ops[i], err = readOp(each); err != nil {
				return nil, fmt.Errorf("%s: %w", o.about(), err)
			}
		}
		return w, o.end()
	case writeReplace:
		document, err := readRaw(o.need("document"))
		if o.err == nil && err != nil {
			o.fail("has a wrong document: %v", err)
		}
		return projection.ReplaceOne{Collection: collection, ID: id, Document: document}, o.end()
	case writeDelete:
		w := projection.DeleteOne{Collection: collection, ID: id}
		if conditions, ok := o.take("if"); ok {
			if w.If, err = readConditions(conditions); err != nil {
				return nil, fmt.Errorf("%s: %w", o.about(), err)
			}
		}
		return w, o.end()
	}
	return nil, fmt.Errorf("the write %q is not one of update, updateExisting, replace and delete", shorten(kind))
}

// The operators of the protocol. add is inc of a number of any type.
const (
	opSet         = "set"
	opSetOnInsert = "setOnInsert"
	opUnset       = "unset"
	opInc         = "inc"
	opMul         = "mul"
	opMin         = "min"
	opMax         = "max"
	opTruncate    = "truncate"
	opAddToSet    = "addToSet"
	opPull        = "pull"
	opPullWhere   = "pullWhere"
)

func readOp(n node) (op projection.Op, err error) {
	o := n.object("an operator")
	kind, field := o.text("op"), readField(&o)
	if o.err != nil {
		return op, o.err
	}
	o.kind, o.name = kind, field
	switch kind {
	case opSet:
		op = projection.Set(field, o.value())
	case opSetOnInsert:
		op = projection.SetOnInsert(field, o.value())
	case opUnset:
		op = projection.Unset(field)
	case opInc:
		op = projection.Add(field, o.value())
	case opMul:
		op = projection.Mul(field, o.value())
	case opMin:
		op = projection.Min(field, o.value())
	case opMax:
		op = projection.Max(field, o.value())
	case opTruncate:
		size, ok := o.value().(int64)
		if !ok {
			o.fail("has a value that is not an integer")
		}
		op = projection.Truncate(field, size)
	case opAddToSet, opPull:
		values, err := readValues(o.list("values"))
		if o.err == nil && err != nil {
			o.fail("has a wrong value: %v", err)
		}
		if op = projection.AddToSet(field, values...); kind == opPull {
			op = projection.Pull(field, values...)
		}
	case opPullWhere:
		conditions, err := readConditions(o.need("where"))
		switch {
		case o.err != nil:
		case err != nil:
			o.fail("%v", err)
		case len(conditions) == 0:
			o.fail("has no condition")
		default:
			op = projection.PullWhere(field, conditions[0], conditions[1:]...)
		}
	default:
		return op, fmt.Errorf("the operator %q is not one of set, setOnInsert, unset, inc, mul, min, max, truncate, addToSet, pull and pullWhere", shorten(kind))
	}
	return op, o.end()
}

// value returns the member value, as [readValue] does.
func (o *object) value() any {
	v, err := readValue(o.need("value"))
	if o.err == nil && err != nil {
		o.fail("has a wrong value: %v", err)
	}
	return v
}

// readField returns the path of a field. Each step is escaped, so that a key may come from data.
func readField(o *object) string {
	steps := o.list("field")
	if o.err == nil && len(steps) == 0 {
		o.fail("has a field without a step")
	}
	return path(o, steps)
}

func path(o *object, steps []node) string {
	if len(steps) == 1 && steps[0].kind == '"' {
		return strings.Clone(projection.EscapeKey(steps[0].text))
	}
	all := make([]string, len(steps))
	for i, step := range steps {
		if step.kind != '"' {
			o.fail("has a field with a step that is not a string")
		}
		all[i] = projection.EscapeKey(step.text)
	}
	return strings.Join(all, ".")
}

var compareKinds = map[string]projection.CompareKind{
	"eq": projection.CompareEq, "lt": projection.CompareLt, "lte": projection.CompareLte, "gt": projection.CompareGt, "gte": projection.CompareGte,
}

const isMissing = "missing"

// readConditions reads a list of conditions. The field of the element itself has no step.
func readConditions(n node) ([]projection.Condition, error) {
	if n.kind != '[' {
		return nil, errors.New("conditions are an array")
	}
	var all []projection.Condition
	for _, each := range n.items {
		o := each.object("a condition")
		is, field := o.text("is"), path(&o, o.list("field"))
		c := projection.Missing(field)
		if is != isMissing {
			kind, known := compareKinds[is]
			if !known {
				o.fail("compares by %q, which is not one of eq, lt, lte, gt, gte and missing", shorten(is))
			}
			c = projection.Condition{Field: field, Kind: kind, Value: o.value()}
		}
		if err := o.end(); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// write appends a write as the protocol has it. Errors: a field that [projection.EscapeKey] cannot
// have written, and what is no write of package projection.
func (e *encoder) write(w projection.Write) {
	e.raw(`{`)
	switch w := w.(type) {
	case projection.UpdateOne:
		kind := writeUpdateExisting
		if w.Upsert {
			kind = writeUpdate
		}
		e.target(kind, w.Collection, w.ID)
		if w.InOrder {
			e.raw(`,"inOrder":true`)
		}
		e.raw(`,"ops":[`)
		for i, op := range w.Ops {
			e.comma(i)
			e.op(op)
		}
		e.raw(`]`)
	case projection.ReplaceOne:
		e.target(writeReplace, w.Collection, w.ID)
		e.raw(`,"document":`)
		e.value(w.Document)
	case projection.DeleteOne:
		e.target(writeDelete, w.Collection, w.ID)
		if len(w.If) > 0 {
			e.raw(`,"if":`)
			e.conditions(w.If)
		}
	default:
		e.fail(fmt.Errorf("a %T is no write", w))
	}
	e.raw(`}`)
}

// encoder appends parts of a write. The first error stays.
type encoder struct {
	dst []byte
	err error
}

func (e *encoder) raw(parts ...string) {
	for _, part := range parts {
		e.dst = append(e.dst, part...)
	}
}

func (e *encoder) comma(i int) {
	if i > 0 {
		e.raw(",")
	}
}

func (e *encoder) text(text string) {
	if isPlain(text) {
		e.raw(`"`, text, `"`)
		return
	}
	quoted, err := json.Marshal(text)
	e.fail(err)
	e.dst = append(e.dst, quoted...)
}

func (e *encoder) value(value any) {
	var err error
	e.dst, err = appendValue(e.dst, value)
	e.fail(err)
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *encoder) target(kind, collection string, id any) {
	e.raw(`"write":"`, kind, `","collection":`)
	e.text(collection)
	e.raw(`,"id":`)
	e.value(id)
}

// path appends a field as its steps; the empty field has none.
func (e *encoder) path(field string) {
	e.raw(`"field":[`)
	if field != "" {
		i := 0
		for step := range strings.SplitSeq(field, ".") {
			key := projection.UnescapeKey(step)
			if projection.EscapeKey(key) != step {
				e.fail(fmt.Errorf("the field %q has a step that EscapeKey does not write", field))
			}
			e.comma(i)
			e.text(key)
			i++
		}
	}
	e.raw(`]`)
}

// plainOps are the operators whose value is the operand.
var plainOps = map[projection.OpKind]string{
	projection.OpSet: opSet, projection.OpSetOnInsert: opSetOnInsert, projection.OpInc: opInc, projection.OpMul: opMul,
	projection.OpMin: opMin, projection.OpMax: opMax,
}

func (e *encoder) op(op projection.Op) {
	begin := func(kind string) {
		e.raw(`{"op":"`, kind, `",`)
		e.path(op.Field)
	}
	switch kind := plainOps[op.Kind]; {
	case kind != "":
		begin(kind)
		e.raw(`,"value":`)
		e.value(op.Value)
	case op.Kind == projection.OpUnset:
		begin(opUnset)
	case op.Kind == projection.OpPush:
		d, _ := op.Value.(bson.D)
		if len(d) != 2 || d[1].Key != "$slice" {
			e.fail(fmt.Errorf("%s of %s is not one that Truncate makes", op.Kind, op.Field))
			return
		}
		begin(opTruncate)
		e.raw(`,"value":`)
		e.value(d[1].Value)
	case op.Kind == projection.OpAddToSet:
		d, _ := op.Value.(bson.D)
		if len(d) != 1 {
			e.fail(fmt.Errorf("%s of %s is not one that AddToSet makes", op.Kind, op.Field))
			return
		}
		begin(opAddToSet)
		e.raw(`,"values":`)
		e.value(d[0].Value)
	case op.Kind == projection.OpPullAll:
		begin(opPull)
		e.raw(`,"values":`)
		e.value(op.Value)
	case op.Kind == projection.OpPull:
		begin(opPullWhere)
		e.raw(`,"where":`)
		e.pulled(op)
	default:
		e.fail(fmt.Errorf("the operator %s is not one of package projection", op.Kind))
	}
	e.raw(`}`)
}

// pulled appends the conditions of a PullWhere.
func (e *encoder) pulled(op projection.Op) {
	d, _ := op.Value.(bson.D)
	var conditions []projection.Condition
	for _, field := range d {
		if strings.HasPrefix(field.Key, "$") {
			conditions = append(conditions, projection.Condition{Kind: projection.CompareKind(field.Key), Value: field.Value})
			continue
		}
		operators, _ := field.Value.(bson.D)
		for _, o := range operators {
			conditions = append(conditions, projection.Condition{Field: field.Key, Kind: projection.CompareKind(o.Key), Value: o.Value})
		}
	}
	if len(conditions) == 0 {
		e.fail(fmt.Errorf("%s of %s is not one that PullWhere makes", op.Kind, op.Field))
	}
	e.conditions(conditions)
}

func (e *encoder) conditions(all []projection.Condition) {
	e.raw(`[`)
	for i, c := range all {
		e.comma(i)
		e.raw(`{`)
		e.path(c.Field)
		if c.Kind == projection.CompareExists {
			e.raw(`,"is":"`, isMissing, `"}`)
			continue
		}
		e.raw(`,"is":"`, strings.TrimPrefix(string(c.Kind), "$"), `","value":`)
		e.value(c.Value)
		e.raw(`}`)
	}
	e.raw(`]`)
}
