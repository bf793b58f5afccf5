package memory

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// push appends to an array: a value, or {$each, $slice}.
func push(value, operand any) (any, error) {
	list, ok := value.(bson.A)
	if !ok {
		return nil, fmt.Errorf("%w: pushing to a value that is not an array", ErrRefused)
	}
	modifiers, ok := operand.(bson.D)
	if !ok || len(modifiers) == 0 || modifiers[0].Key != "$each" {
		return append(slices.Clip(list), operand), nil
	}
	for _, m := range modifiers {
		switch m.Key {
		case "$each":
			each, ok := m.Value.(bson.A)
			if !ok {
				return nil, fmt.Errorf("%w: $each is not an array", ErrRefused)
			}
			list = append(slices.Clip(list), each...)
		case "$slice":
			n, ok := m.Value.(int64)
			if small, isSmall := m.Value.(int32); isSmall {
				n, ok = int64(small), true
			}
			if !ok {
				return nil, fmt.Errorf("%w: $slice is not a whole number", ErrRefused)
			}
			switch size := int64(len(list)); {
			case n >= 0:
				list = list[:min(n, size)]
			case -n < size:
				list = list[size+n:]
			}
		default:
			return nil, fmt.Errorf("%w: $push with %s", ErrUnsupported, m.Key)
		}
	}
	return slices.Clone(list), nil
}

// addToSet appends the values of {$each} that no element equals.
func addToSet(value, operand any) (any, error) {
	list, ok := value.(bson.A)
	if !ok {
		return nil, fmt.Errorf("%w: adding to a value that is not an array", ErrRefused)
	}
	modifiers, _ := operand.(bson.D)
	if len(modifiers) != 1 || modifiers[0].Key != "$each" {
		return nil, fmt.Errorf("%w: $addToSet without $each alone", ErrUnsupported)
	}
	each, ok := modifiers[0].Value.(bson.A)
	if !ok {
		return nil, fmt.Errorf("%w: $each is not an array", ErrRefused)
	}
	list = slices.Clone(list)
	for _, v := range each {
		held, err := holds(list, v)
		if err != nil {
			return nil, err
		}
		if !held {
			list = append(list, v)
		}
	}
	return list, nil
}

// pull removes the elements that equal one of a list ($pullAll), or that meet conditions ($pull).
func pull(value, operand any, kind projection.OpKind) (any, error) {
	gone := func(v any) (bool, error) { return meetsPull(v, operand) }
	if kind == projection.OpPullAll {
		values, ok := operand.(bson.A)
		if !ok {
			return nil, fmt.Errorf("%w: $pullAll without an array", ErrRefused)
		}
		gone = func(v any) (bool, error) { return holds(values, v) }
	}
	list, ok := value.(bson.A)
	if !ok {
		return nil, fmt.Errorf("%w: removing from a value that is not an array", ErrRefused)
	}
	kept := bson.A{}
	for _, v := range list {
		remove, err := gone(v)
		if err != nil {
			return nil, err
		}
		if !remove {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// holds reports whether an element of a list equals a value.
func holds(list bson.A, value any) (bool, error) {
	for _, v := range list {
		if order, err := compare(v, value); order == 0 || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}
