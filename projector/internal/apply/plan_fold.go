package apply

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Fold combines several consecutive writes to one document, so that they are applied at once.
// Applying it has the effect of applying them in order. The zero value is empty.
type Fold struct {
	target projection.Write // any of the writes
	// replacement is set when the fold begins with a whole document; then there are no ops.
	replacement bson.Raw
	upsert      bool
	// ops holds at most one operator per field; at finds it, below counts the fields under a path.
	ops    []projection.Op
	at     map[string]int
	below  map[string]int
	writes int
	// journal is what the current event changed, to be undone if not all of it can be folded in.
	journal []step
}

// step is one change of the ops: a new one at the end, or one that replaces old.
type step struct {
	index int
	added bool
	old   projection.Op
}

// Add adds the writes of one more event. If they cannot be combined with the others into one write,
// it returns false and changes nothing.
func (f *Fold) Add(writes []projection.Write) bool {
	upsert, count := f.upsert, f.writes
	var wiped *Fold // what a whole document of this event overwrote
	f.journal = f.journal[:0]
	for _, w := range writes {
		if replace, ok := w.(projection.ReplaceOne); ok {
			if wiped == nil {
				f.undo()
				f.upsert, f.writes = upsert, count
				before := *f
				wiped = &before
			}
			*f = Fold{}
			f.replacement, f.upsert, f.writes = replace.Document, true, 1
			continue
		}
		if update, ok := w.(projection.UpdateOne); ok && f.update(update) {
			continue
		}
		if wiped != nil {
			*f = *wiped
		} else {
			f.undo()
			f.upsert, f.writes = upsert, count
		}
		return false
	}
	if len(writes) > 0 {
		f.target = writes[0]
	}
	return true
}

// Take returns a write with the effect of all that were added, and forgets them; false if there was
// no write.
func (f *Fold) Take() (projection.Write, bool) {
	if f.target == nil {
		return nil, false
	}
	folded := *f
	*f = Fold{}
	collection, id := folded.target.Target()
	if folded.replacement != nil {
		return projection.ReplaceOne{Collection: collection, ID: id, Document: folded.replacement}, true
	}
	return projection.UpdateOne{Collection: collection, ID: id, Upsert: folded.upsert, Ops: folded.ops}, true
}

func (f *Fold) update(w projection.UpdateOne) bool {
	if f.replacement != nil || (w.Upsert && !f.upsert && f.writes > 0) {
		return false
	}
	if w.InOrder && !f.keepsOrder(w.Ops) {
		return false
	}
	for _, op := range w.Ops {
		if !f.foldOp(op, f.writes == 0) {
			return false
		}
	}
	f.upsert = f.upsert || w.Upsert
	f.writes++
	return true
}

// foldOp adds one operator. first is set if it belongs to the first write: only that one can create
// the document, so only its $setOnInsert counts.
func (f *Fold) foldOp(op projection.Op, first bool) bool {
	if i, ok := f.at[op.Field]; ok {
		merged, ok := merge(f.ops[i], op)
		if ok {
			f.journal = append(f.journal, step{index: i, old: f.ops[i]})
			f.ops[i] = merged
		}
		return ok
	}
	if op.Kind == projection.OpSetOnInsert && !first {
		return true
	}
	// MongoDB refuses an update that writes both a field and something inside it.
	if f.below[op.Field] > 0 {
		return false
	}
	for path := range above(op.Field) {
		if _, taken := f.at[path]; taken {
			return false
		}
	}
	if f.at == nil {
		f.at, f.below = make(map[string]int), make(map[string]int)
	}
	for path := range above(op.Field) {
		f.below[path]++
	}
	f.journal = append(f.journal, step{index: len(f.ops), added: true})
	f.at[op.Field] = len(f.ops)
	f.ops = append(f.ops, op)
	return true
}

// keepsOrder reports whether new fields get the places that they would get if the operators were
// applied after the earlier ones: MongoDB adds the new fields of one update in the order of their
// paths, regardless of the order of its operators.
func (f *Fold) keepsOrder(ops []projection.Op) bool {
	for _, op := range ops {
		if i, ok := f.at[op.Field]; ok {
			if f.ops[i].Kind == projection.OpUnset && op.Kind != projection.OpUnset {
				return false // it is removed, and added again at the end
			}
			continue
		}
		for _, before := range f.ops {
			if !follows(op.Field, before.Field) {
				return false
			}
		}
	}
	return true
}

// follows reports whether MongoDB adds the field at path after the one at other, in one update: it
// compares step by step, by the names' bytes. Since 5.0 it compares two numbers by value; both
// orders must agree, for older servers.
func follows(path, other string) bool {
	for {
		step, rest, _ := strings.Cut(path, ".")
		otherStep, otherRest, _ := strings.Cut(other, ".")
		if step != otherStep {
			number, err := strconv.ParseUint(step, 10, 64)
			otherNumber, otherErr := strconv.ParseUint(otherStep, 10, 64)
			return step > otherStep && (err != nil || otherErr != nil || number > otherNumber)
		}
		if rest == "" || otherRest == "" {
			return rest != ""
		}
		path, other = rest, otherRest
	}
}

// undo undoes the journal.
func (f *Fold) undo() {
	for _, s := range slices.Backward(f.journal) {
		if !s.added {
			f.ops[s.index] = s.old
			continue
		}
		field := f.ops[s.index].Field
		for path := range above(field) {
			f.below[path]--
		}
		delete(f.at, field)
		f.ops = f.ops[:s.index]
	}
	f.journal = f.journal[:0]
}

// above yields the paths that a path is inside of.
func above(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(field, '.'); i >= 0; i = strings.LastIndexByte(field[:i], '.') {
			if !yield(field[:i]) {
				return
			}
		}
	}
}

// merge combines two consecutive operators on one field.
func merge(a, b projection.Op) (projection.Op, bool) {
	if b.Kind == projection.OpSetOnInsert {
		// The document exists by now: b does nothing.
		return a, replaceable(a.Kind)
	}
	if b.Kind == projection.OpUnset && a.Kind != projection.OpUnset && strings.Contains(a.Field, ".") {
		return a, false // it leaves the documents that a made around the field
	}
	if b.Kind == projection.OpSet || b.Kind == projection.OpUnset {
		return b, replaceable(a.Kind)
	}
	bound := b.Kind == projection.OpMin || b.Kind == projection.OpMax
	switch {
	case a.Kind == projection.OpInc && b.Kind == projection.OpInc, a.Kind == projection.OpSet && b.Kind == projection.OpInc:
		sum, ok := addInt64(a.Value, b.Value)
		return projection.Op{Kind: a.Kind, Field: a.Field, Value: sum}, ok
	case bound && (a.Kind == b.Kind || a.Kind == projection.OpSet):
		order, ok := compare(a.Value, b.Value)
		if (b.Kind == projection.OpMin) == (order > 0) && order != 0 {
			a.Value = b.Value
		}
		return a, ok
	}
	return a, false
}

// replaceable reports whether a later operator may replace one of this kind, so that the database
// never sees it. The database itself must check whether the others can be applied to the field.
func replaceable(kind projection.OpKind) bool {
	switch kind {
	case projection.OpSet, projection.OpSetOnInsert, projection.OpUnset, projection.OpInc, projection.OpMin, projection.OpMax:
		return true
	case projection.OpMul, projection.OpPush, projection.OpAddToSet, projection.OpPull, projection.OpPullAll:
	}
	return false
}

// addInt64 returns the sum of two int64; ok is false if one has another type, or if MongoDB would
// refuse the sum.
func addInt64(a, b any) (any, bool) {
	x, xOK := a.(int64)
	y, yOK := b.(int64)
	if !xOK || !yOK || (y > 0 && x > math.MaxInt64-y) || (y < 0 && x < math.MinInt64-y) {
		return nil, false
	}
	return x + y, true
}

// compare orders two values of one Go type as BSON does; ok is false for unknown types.
func compare(a, b any) (order int, ok bool) {
	switch x := a.(type) {
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y), true
		}
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), true
		}
	case time.Time:
		if y, ok := b.(time.Time); ok {
			// BSON keeps milliseconds.
			return x.Truncate(time.Millisecond).Compare(y.Truncate(time.Millisecond)), true
		}
	}
	return 0, false
}
