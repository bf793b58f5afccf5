package query

import (
	"slices"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// keywords of $jsonSchema that are understood here: MongoDB's draft 4 with bsonType, without
// dependencies and patternProperties. A keyword constrains values of its type only; required and
// bsonType decide about the others.
var keywords map[string]func(arg any, schema bson.D) (predicate, error)

func init() { // not a literal: a schema holds schemas
	keywords = map[string]func(any, bson.D) (predicate, error){
		"title": annotation, "description": annotation,
		"bsonType":             func(arg any, _ bson.D) (predicate, error) { return typed(arg, false) },
		"type":                 func(arg any, _ bson.D) (predicate, error) { return typed(arg, true) },
		"enum":                 enumerated,
		"required":             required,
		"properties":           properties,
		"additionalProperties": additionalProperties,
		"items":                items,
		"minimum":              schemaBound(func(order int) bool { return order >= 0 }, "exclusiveMinimum"),
		"maximum":              schemaBound(func(order int) bool { return order <= 0 }, "exclusiveMaximum"),
		"exclusiveMinimum":     annotation, "exclusiveMaximum": annotation, // part of the bounds
		"minLength":     schemaSize(func(n, limit int64) bool { return n >= limit }, characters),
		"maxLength":     schemaSize(func(n, limit int64) bool { return n <= limit }, characters),
		"minItems":      schemaSize(func(n, limit int64) bool { return n >= limit }, elementCount),
		"maxItems":      schemaSize(func(n, limit int64) bool { return n <= limit }, elementCount),
		"minProperties": schemaSize(func(n, limit int64) bool { return n >= limit }, fieldCount),
		"maxProperties": schemaSize(func(n, limit int64) bool { return n <= limit }, fieldCount),
		"uniqueItems":   uniqueItems,
		"pattern":       pattern,
		"allOf":         func(arg any, _ bson.D) (predicate, error) { return several(arg, and) },
		"anyOf":         func(arg any, _ bson.D) (predicate, error) { return several(arg, or) },
		"oneOf":         func(arg any, _ bson.D) (predicate, error) { return several(arg, exactlyOne) },
		"not": func(arg any, _ bson.D) (predicate, error) {
			p, err := compileSchema(arg)
			if err != nil {
				return nil, err
			}
			return not(p), nil
		},
	}
}

func compileSchema(arg any) (predicate, error) {
	schema, ok := arg.(bson.D)
	if !ok {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "$jsonSchema must be an object")
	}
	var parts []predicate
	for _, e := range schema {
		compile, known := keywords[e.Key]
		if !known {
			return nil, mongoerr.Unsupported("the $jsonSchema keyword %q", e.Key)
		}
		p, err := compile(e.Value, schema)
		if err != nil {
			return nil, err
		}
		if p != nil {
			parts = append(parts, p)
		}
	}
	return and(parts), nil
}

func badSchema(keyword, want string) error {
	return mongoerr.New(mongoerr.TypeMismatch, "$jsonSchema keyword '%s' must be %s", keyword, want)
}

func annotation(any, bson.D) (predicate, error) { return nil, nil }

// typed is bsonType, or type with JSON's own names.
func typed(arg any, json bool) (predicate, error) {
	if name, ok := arg.(string); ok && json && name == "boolean" {
		arg = "bool"
	}
	leaves, err := typeLeaf(arg)
	if err != nil {
		return nil, err
	}
	return func(v any) (bool, error) { return leaves[0].test(v) }, nil
}

func enumerated(arg any, _ bson.D) (predicate, error) {
	list, ok := arg.(bson.A)
	if !ok || len(list) == 0 {
		return nil, badSchema("enum", "a nonempty array")
	}
	return func(v any) (bool, error) {
		return slices.ContainsFunc(list, func(want any) bool { return value.Equal(v, want) }), nil
	}, nil
}

func required(arg any, _ bson.D) (predicate, error) {
	list, ok := arg.(bson.A)
	if !ok || len(list) == 0 {
		return nil, badSchema("required", "a nonempty array of strings")
	}
	return func(v any) (bool, error) {
		d, isDocument := v.(bson.D)
		for _, item := range list {
			name, _ := item.(string)
			if _, has := value.Get(d, name); isDocument && !has {
				return false, nil
			}
		}
		return true, nil
	}, nil
}

func properties(arg any, _ bson.D) (predicate, error) {
	schemas, ok := arg.(bson.D)
	if !ok {
		return nil, badSchema("properties", "an object")
	}
	var parts []predicate
	for _, e := range schemas {
		p, err := compileSchema(e.Value)
		if err != nil {
			return nil, err
		}
		parts = append(parts, func(v any) (bool, error) {
			d, _ := v.(bson.D)
			field, has := value.Get(d, e.Key)
			if !has {
				return true, nil
			}
			return p(field)
		})
	}
	return and(parts), nil
}

func additionalProperties(arg any, schema bson.D) (predicate, error) {
	listed, _ := value.Get(schema, "properties")
	known, _ := listed.(bson.D)
	rest := func(any) (bool, error) { return arg != false, nil }
	if _, isFlag := arg.(bool); !isFlag {
		p, err := compileSchema(arg)
		if err != nil {
			return nil, err
		}
		rest = p
	}
	return func(v any) (bool, error) {
		d, _ := v.(bson.D)
		for _, e := range d {
			if _, is := value.Get(known, e.Key); is {
				continue
			}
			if ok, err := rest(e.Value); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}, nil
}

func items(arg any, _ bson.D) (predicate, error) {
	p, err := compileSchema(arg)
	if err != nil {
		return nil, err
	}
	return func(v any) (bool, error) {
		list, _ := v.(bson.A)
		for _, item := range list {
			if ok, err := p(item); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}, nil
}

func schemaBound(holds func(order int) bool, exclusive string) func(any, bson.D) (predicate, error) {
	return func(limit any, schema bson.D) (predicate, error) {
		if _, ok := value.AsFloat(limit); !ok {
			return nil, badSchema("minimum or maximum", "a number")
		}
		open, _ := value.Get(schema, exclusive)
		return func(v any) (bool, error) {
			if _, ok := value.AsFloat(v); !ok {
				return true, nil
			}
			order := value.Compare(v, limit)
			return holds(order) && (order != 0 || open != true), nil
		}, nil
	}
}

func schemaSize(holds func(n, limit int64) bool, of func(v any) (int, bool)) func(any, bson.D) (predicate, error) {
	return func(arg any, _ bson.D) (predicate, error) {
		limit, ok := value.AsInt(arg)
		if !ok || limit < 0 {
			return nil, mongoerr.New(mongoerr.FailedToParse, "a length in $jsonSchema must be a whole number from 0")
		}
		return func(v any) (bool, error) {
			n, applies := of(v)
			return !applies || holds(int64(n), limit), nil
		}, nil
	}
}

func characters(v any) (int, bool) {
	s, ok := v.(string)
	return utf8.RuneCountInString(s), ok
}

func elementCount(v any) (int, bool) {
	list, ok := v.(bson.A)
	return len(list), ok
}

func fieldCount(v any) (int, bool) {
	d, ok := v.(bson.D)
	return len(d), ok
}

func uniqueItems(arg any, _ bson.D) (predicate, error) {
	if arg != true {
		return nil, nil
	}
	return func(v any) (bool, error) {
		list, _ := v.(bson.A)
		for i, item := range list {
			if slices.ContainsFunc(list[:i], func(before any) bool { return value.Equal(before, item) }) {
				return false, nil
			}
		}
		return true, nil
	}, nil
}

func pattern(arg any, _ bson.D) (predicate, error) {
	text, ok := arg.(string)
	if !ok {
		return nil, badSchema("pattern", "a string")
	}
	re, err := compileRegex(text, "")
	if err != nil {
		return nil, err
	}
	return func(v any) (bool, error) {
		s, isText := v.(string)
		return !isText || re.MatchString(s), nil
	}, nil
}

func several(arg any, join func([]predicate) predicate) (predicate, error) {
	list, ok := arg.(bson.A)
	if !ok || len(list) == 0 {
		return nil, badSchema("allOf, anyOf or oneOf", "a nonempty array of objects")
	}
	parts := make([]predicate, 0, len(list))
	for _, item := range list {
		p, err := compileSchema(item)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return join(parts), nil
}

func exactlyOne(parts []predicate) predicate {
	return func(v any) (bool, error) {
		n := 0
		for _, p := range parts {
			ok, err := p(v)
			if err != nil {
				return false, err
			}
			if ok {
				n++
			}
		}
		return n == 1, nil
	}
}
