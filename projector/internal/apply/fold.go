package apply

import (
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// fold is several writes to one document, one after the other, said as one. Applying it has the effect of applying
// them in order.
type fold struct {
	// replacement is set when the fold begins with a whole document; then there are no ops.
	replacement bson.Raw
	upsert      bool
	// ops holds at most one operator per field; at finds it, below counts the fields under a path.
	ops    []projection.Op
	at     map[string]int
	below  map[string]int
	writes int
}

func newFold() *fold { return &fold{at: make(map[string]int), below: make(map[string]int)} }

// empty says that nothing has been folded but events without effect.
func (f *fold) empty() bool { return f.writes == 0 }

// add folds the writes of one more event in. It answers false, and changes nothing, when they and what is there cannot
// be said as one update.
func (f *fold) add(writes []projection.Write) bool {
	if len(writes) == 0 {
		return true
	}
	next := f.clone()
	for _, w := range writes {
		switch w := w.(type) {
		case projection.ReplaceOne:
			next = newFold()
			next.replacement, next.upsert = w.Document, true
		case projection.UpdateOne:
			if next.replacement != nil || (w.Upsert && !next.upsert && next.writes > 0) {
				return false
			}
			for _, op := range w.Ops {
				if !next.addOp(op, next.writes == 0) {
					return false
				}
			}
			next.upsert = next.upsert || w.Upsert
		default:
			return false
		}
		next.writes++
	}
	*f = *next
	return true
}

// clone copies what add changes, so that an event is folded in whole or not at all.
func (f *fold) clone() *fold {
	next := *f
	next.ops = append(make([]projection.Op, 0, len(f.ops)+8), f.ops...)
	next.at, next.below = make(map[string]int, len(f.at)+8), make(map[string]int, len(f.below)+8)
	for field, i := range f.at {
		next.at[field] = i
	}
	for field, n := range f.below {
		next.below[field] = n
	}
	return &next
}

// addOp folds one operator in. first says that it belongs to the first write: only that one can be the one that makes
// the document, so only its $setOnInsert counts.
func (f *fold) addOp(op projection.Op, first bool) bool {
	if i, ok := f.at[op.Field]; ok {
		merged, ok := merge(f.ops[i], op)
		if ok {
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
	for i := strings.LastIndexByte(op.Field, '.'); i >= 0; i = strings.LastIndexByte(op.Field[:i], '.') {
		if _, taken := f.at[op.Field[:i]]; taken {
			return false
		}
	}
	for i := strings.LastIndexByte(op.Field, '.'); i >= 0; i = strings.LastIndexByte(op.Field[:i], '.') {
		f.below[op.Field[:i]]++
	}
	f.at[op.Field] = len(f.ops)
	f.ops = append(f.ops, op)
	return true
}

// merge says two operators on one field, one after the other, as one.
func merge(a, b projection.Op) (projection.Op, bool) {
	if b.Kind == projection.OpSetOnInsert {
		// The document is there by now: b does nothing.
		return a, a.Kind != projection.OpPush
	}
	switch b.Kind {
	case projection.OpSet, projection.OpUnset:
		return b, a.Kind != projection.OpPush
	}
	switch {
	case a.Kind == projection.OpInc && b.Kind == projection.OpInc, a.Kind == projection.OpSet && b.Kind == projection.OpInc:
		sum, ok := add(a.Value, b.Value)
		return projection.Op{Kind: a.Kind, Field: a.Field, Value: sum}, ok
	case a.Kind == b.Kind && (a.Kind == projection.OpMin || a.Kind == projection.OpMax):
		order, ok := compare(a.Value, b.Value)
		if (a.Kind == projection.OpMin) == (order > 0) && order != 0 {
			a.Value = b.Value
		}
		return a, ok
	}
	return a, false
}

// add is the sum of two int64; not ok when one is something else, or when MongoDB would refuse the sum.
func add(a, b any) (any, bool) {
	x, xOK := a.(int64)
	y, yOK := b.(int64)
	if !xOK || !yOK || (y > 0 && x > math.MaxInt64-y) || (y < 0 && x < math.MinInt64-y) {
		return nil, false
	}
	return x + y, true
}

// compare orders two values of one Go type as BSON does; not ok for types it does not know.
func compare(a, b any) (order int, ok bool) {
	switch x := a.(type) {
	case int64:
		if y, ok := b.(int64); ok {
			return sign(x < y, x > y), true
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

func sign(less, greater bool) int {
	switch {
	case less:
		return -1
	case greater:
		return 1
	}
	return 0
}
