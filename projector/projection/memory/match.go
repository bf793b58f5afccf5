package memory

import (
	"fmt"
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// meets reports whether a document meets a filter of [projection.Filter].
func meets(document bson.D, filter bson.D) (bool, error) {
	for _, condition := range filter {
		operators, ok := condition.Value.(bson.D)
		if !ok {
			return false, fmt.Errorf("%w: the condition of %q", ErrUnsupported, condition.Key)
		}
		value, err := reach(document, condition.Key)
		if err != nil {
			return false, err
		}
		if met, err := meetsAll(value, operators); !met || err != nil {
			return false, err
		}
	}
	return true, nil
}

// reach follows a path through documents.
func reach(document bson.D, path string) (any, error) {
	var value any = document
	for step := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case bson.D:
			value = field(v, step)
		case bson.A:
			return nil, fmt.Errorf("%w: the condition's path %q leads through an array", ErrUnsupported, path)
		default:
			return missing{}, nil
		}
	}
	return value, nil
}

// meetsPull reports whether an element of an array meets the conditions of [projection.PullWhere].
func meetsPull(element, conditions any) (bool, error) {
	filter, ok := conditions.(bson.D)
	if !ok || len(filter) == 0 {
		return false, fmt.Errorf("%w: $pull without conditions", ErrUnsupported)
	}
	if strings.HasPrefix(filter[0].Key, "$") {
		return meetsAll(element, filter)
	}
	document, ok := element.(bson.D)
	if !ok {
		return false, nil
	}
	return meets(document, filter)
}

// meetsAll reports whether a value meets every operator. An array meets one if one of its elements
// does.
func meetsAll(value any, operators bson.D) (bool, error) {
	for _, o := range operators {
		operand, err := Stored(o.Value)
		if err != nil {
			return false, err
		}
		kind := projection.CompareKind(o.Key)
		met, err := meetsOne(value, kind, operand)
		if list, ok := value.(bson.A); ok && kind != projection.CompareExists {
			for i := 0; i < len(list) && !met && err == nil; i++ {
				met, err = meetsOne(list[i], kind, operand)
			}
		}
		if !met || err != nil {
			return false, err
		}
	}
	return true, nil
}

func meetsOne(value any, kind projection.CompareKind, operand any) (bool, error) {
	_, absent := value.(missing)
	if kind == projection.CompareExists {
		if wanted, ok := operand.(bool); ok {
			return wanted != absent, nil
		}
	}
	if absent || class(value) != class(operand) {
		return false, nil
	}
	order, err := compare(value, operand)
	if err != nil {
		return false, err
	}
	notNumber := class(value) == classNumber && compareNumbers(value, math.NaN()) == 0
	switch kind {
	case projection.CompareEq:
		return order == 0, nil
	case projection.CompareLt:
		return order < 0 && !notNumber, nil
	case projection.CompareLte:
		return order <= 0 && !notNumber, nil
	case projection.CompareGt:
		return order > 0, nil
	case projection.CompareGte:
		return order >= 0, nil
	case projection.CompareExists:
	}
	return false, fmt.Errorf("%w: the condition %s", ErrUnsupported, kind)
}
