package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// check checks an update against the rules that need no document.
func check(ops []projection.Op) error {
	for i, op := range ops {
		for step := range strings.SplitSeq(op.Field, ".") {
			switch {
			case step == "":
				return fmt.Errorf("%w: the path %q has an empty step", ErrRefused, op.Field)
			case step[0] == '$':
				return fmt.Errorf("%w: the path %q has a step that begins with a dollar; EscapeKey escapes it", ErrUnsupported, op.Field)
			}
		}
		if op.Field == "_id" || strings.HasPrefix(op.Field, "_id.") {
			return fmt.Errorf("%w: an update of the _id", ErrUnsupported)
		}
		for _, other := range ops[i+1:] {
			if inside(op.Field, other.Field) || inside(other.Field, op.Field) {
				return fmt.Errorf("%w: one update writes to both %q and %q", ErrRefused, op.Field, other.Field)
			}
		}
	}
	return nil
}

// inside reports whether path is outer or a path inside it.
func inside(path, outer string) bool {
	return path == outer || (strings.HasPrefix(path, outer) && path[len(outer)] == '.')
}

// update returns the document after the operators. It does not change old.
func update(old bson.D, ops []projection.Op, inserting bool) (bson.D, error) {
	if err := check(ops); err != nil {
		return nil, err
	}
	ops = slices.Clone(ops)
	// MongoDB adds new fields in the order of their paths.
	slices.SortStableFunc(ops, func(a, b projection.Op) int {
		return slices.Compare(strings.Split(a.Field, "."), strings.Split(b.Field, "."))
	})
	var now any = old
	for _, op := range ops {
		if op.Kind == projection.OpSetOnInsert && !inserting {
			continue
		}
		changed, err := at(now, strings.Split(op.Field, "."), op)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", op.Kind, op.Field, err)
		}
		now = changed
	}
	document, _ := now.(bson.D)
	return document, nil
}

// missing stands for a missing field.
type missing struct{}

// maxPadding is how many elements an update may add to an array to reach an index. [MongoDB
// src/mongo/db/update/path_support.h, kMaxPaddingAllowed]
const maxPadding = 1_500_000

// at applies an operator at a path inside a value, and returns the new value. Values are not
// changed in place: the old document and the new one share what the update does not touch.
func at(value any, path []string, op projection.Op) (any, error) {
	if len(path) == 0 {
		return operate(value, op)
	}
	unset := op.Kind == projection.OpUnset
	removes := unset || op.Kind == projection.OpPull || op.Kind == projection.OpPullAll // and so creates no path
	switch v := value.(type) {
	case missing:
		if removes {
			return v, nil
		}
		return at(bson.D{}, path, op)
	case bson.D:
		i := slices.IndexFunc(v, func(e bson.E) bool { return e.Key == path[0] })
		changed, err := at(field(v, path[0]), path[1:], op)
		if err != nil {
			return nil, err
		}
		_, gone := changed.(missing)
		switch {
		case gone && i >= 0:
			return slices.Delete(slices.Clone(v), i, i+1), nil
		case gone:
			return v, nil
		case i < 0:
			return append(slices.Clip(v), bson.E{Key: path[0], Value: changed}), nil
		}
		now := slices.Clone(v)
		now[i].Value = changed
		return now, nil
	case bson.A:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || strconv.Itoa(i) != path[0] {
			if unset {
				return v, nil
			}
			return nil, fmt.Errorf("%w: an array has no field %q", ErrRefused, path[0])
		}
		if i >= len(v) {
			if removes {
				return v, nil
			}
			if i-len(v) > maxPadding {
				return nil, fmt.Errorf("%w: the array is too short for the index %d", ErrRefused, i)
			}
		}
		now := slices.Clone(v)
		for len(now) <= i {
			now = append(now, nil)
		}
		var inner any = missing{}
		if i < len(v) {
			inner = v[i]
		}
		changed, err := at(inner, path[1:], op)
		if err != nil {
			return nil, err
		}
		if _, gone := changed.(missing); gone {
			changed = nil // an element that is unset becomes null
		}
		now[i] = changed
		return now, nil
	}
	if unset {
		return value, nil
	}
	return nil, fmt.Errorf("%w: a value that is not a document has no field %q", ErrRefused, path[0])
}

// operate applies one operator to the value of its field.
func operate(value any, op projection.Op) (any, error) {
	if op.Kind == projection.OpUnset {
		return missing{}, nil
	}
	operand, err := Stored(op.Value)
	if err != nil {
		return nil, err
	}
	_, absent := value.(missing)
	switch op.Kind {
	case projection.OpSet, projection.OpSetOnInsert:
		return operand, nil
	case projection.OpInc:
		if absent {
			if class(operand) != classNumber {
				return nil, fmt.Errorf("%w: the sum needs a number, not %s", ErrRefused, Text(operand))
			}
			return operand, nil
		}
		return add(value, operand)
	case projection.OpMul:
		if absent {
			value = int32(0)
		}
		return multiply(value, operand)
	case projection.OpMin, projection.OpMax:
		if absent {
			return operand, nil
		}
		order, err := compare(operand, value)
		if err != nil {
			return nil, err
		}
		if (op.Kind == projection.OpMin && order < 0) || (op.Kind == projection.OpMax && order > 0) {
			return operand, nil
		}
		return value, nil
	case projection.OpPush:
		if absent {
			value = bson.A{}
		}
		return push(value, operand)
	case projection.OpAddToSet:
		if absent {
			value = bson.A{}
		}
		return addToSet(value, operand)
	case projection.OpPull, projection.OpPullAll:
		if absent {
			return value, nil
		}
		return pull(value, operand, op.Kind)
	case projection.OpUnset: // above
	}
	return nil, fmt.Errorf("%w: the operator %s", ErrUnsupported, op.Kind)
}
