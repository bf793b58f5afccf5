package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// reasons are why a condition of a validator does not hold, and, of one that is negated, why it
// does. [MongoDB src/mongo/db/matcher/doc_validation_error.cpp]
var reasons = map[string][2]string{
	"$type": {"type did not match", "type did match"}, "bsonType": {"type did not match"}, "type": {"type did not match"},
	"$in":     {"no matching value found in array", "matching value found in array"},
	"$exists": {"path does not exist", "path does exist"},
	"$mod":    {"$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"},
	"$size":   {"array length was not equal to given size", "array length was equal to given size"},
	"$all":    {"array did not contain all specified values", "array did contain all specified values"},
	"$regex":  {"regular expression did not match", "regular expression did match"}, "pattern": {"regular expression did not match"},
	"$elemMatch": {"array did not satisfy the child predicate", "array did satisfy the child predicate"},
	"$expr":      {"expression did not match", "expression did match"},
	"enum":       {"value was not found in enum"},
	"minLength":  {"specified string length was not satisfied"}, "maxLength": {"specified string length was not satisfied"},
	"minItems": {"array did not match specified length"}, "maxItems": {"array did not match specified length"},
	"uniqueItems":   {"found a duplicate item"},
	"minProperties": {"specified number of properties was not satisfied"}, "maxProperties": {"specified number of properties was not satisfied"},
}

func reason(operator string, negated bool) string {
	texts, ok := reasons[operator]
	switch {
	case !ok && negated:
		return "comparison succeeded"
	case !ok:
		return "comparison failed"
	case negated:
		return texts[1]
	}
	return texts[0]
}

// Unmet returns the details with which a server explains why a document does not fulfil a
// validator.
func Unmet(filter, doc bson.D) bson.D { return unmet(clauses(filter), doc, false) }

// clauses returns the conditions of a filter, one operator each.
func clauses(filter bson.D) (out []bson.E) {
	for _, e := range filter {
		if strings.HasPrefix(e.Key, "$") || !isOperators(e.Value) {
			out = append(out, e)
			continue
		}
		for _, op := range e.Value.(bson.D) {
			out = append(out, bson.E{Key: e.Key, Value: bson.D{op}})
		}
	}
	return out
}

func unmet(all []bson.E, doc bson.D, negated bool) bson.D {
	if len(all) == 1 {
		return unmetClause(all[0], doc, negated)
	}
	var filters bson.A
	for _, c := range all {
		filters = append(filters, bson.D{c})
	}
	return unmetOf("$and", "clausesNotSatisfied", filters, doc, negated)
}

// unmetOf describes those of several filters that do not hold, or that do.
func unmetOf(operator, list string, filters bson.A, doc bson.D, negated bool) bson.D {
	out := bson.A{}
	for i, f := range filters {
		m, err := Compile(asDocument(f), &Env{})
		if err != nil {
			continue
		}
		if ok, err := m.Match(doc); err == nil && ok == negated {
			out = append(out, bson.D{{Key: "index", Value: int32(i)}, {Key: "details", Value: unmet(clauses(asDocument(f)), doc, negated)}})
		}
	}
	return bson.D{{Key: "operatorName", Value: operator}, {Key: list, Value: out}}
}

func unmetClause(c bson.E, doc bson.D, negated bool) bson.D {
	branches, _ := c.Value.(bson.A)
	switch c.Key {
	case "$and", "$or":
		if negated {
			return unmetOf(c.Key, "clausesSatisfied", branches, doc, true)
		}
		return unmetOf(c.Key, "clausesNotSatisfied", branches, doc, false)
	case "$nor":
		return unmetOf(c.Key, "clausesSatisfied", branches, doc, true)
	case "$jsonSchema":
		schema := asDocument(c.Value)
		out := bson.D{{Key: "operatorName", Value: c.Key}}
		return append(append(out, annotations(schema)...), bson.E{Key: "schemaRulesNotSatisfied", Value: unmetRules(schema, doc)})
	case "$expr":
		e, err := CompileExpr(c.Value)
		if err != nil {
			return bson.D{}
		}
		result, err := e.Eval(doc, &Env{})
		if err != nil {
			return bson.D{}
		}
		return bson.D{
			{Key: "operatorName", Value: c.Key},
			{Key: "specifiedAs", Value: bson.D{c}},
			{Key: "reason", Value: reason(c.Key, negated)},
			{Key: "expressionResult", Value: result},
		}
	}
	return unmetField(c, doc, negated)
}

func unmetField(c bson.E, doc bson.D, negated bool) bson.D {
	operator := "$eq"
	if isOperators(c.Value) {
		operator = c.Value.(bson.D)[0].Key
	} else if _, is := c.Value.(bson.Regex); is {
		operator = "$regex"
	}
	why := operator
	switch operator {
	case "$not":
		return bson.D{
			{Key: "operatorName", Value: operator},
			{Key: "details", Value: unmet(clauses(bson.D{{Key: c.Key, Value: c.Value.(bson.D)[0].Value}}), doc, !negated)},
		}
	case "$ne", "$nin":
		why, negated = map[string]string{"$ne": "$eq", "$nin": "$in"}[operator], !negated
	}
	out := bson.D{{Key: "operatorName", Value: operator}, {Key: "specifiedAs", Value: bson.D{c}}}
	considered, whole := bson.A{}, slices.Contains([]string{"$size", "$elemMatch", "$all"}, operator)
	value.Walk(doc, value.Split(c.Key), func(v any, byIndex bool) bool {
		list, isArray := v.(bson.A)
		switch {
		case v == any(value.Missing{}):
		case isArray && !whole && !byIndex && len(list) > 0:
			considered = append(considered, list...)
		default:
			considered = append(considered, v)
		}
		return false
	})
	if len(considered) == 0 && operator != "$exists" {
		return append(out, bson.E{Key: "reason", Value: "field was missing"})
	}
	out = append(out, bson.E{Key: "reason", Value: reason(why, negated)})
	switch len(considered) {
	case 0:
	case 1:
		out = append(out, bson.E{Key: "consideredValue", Value: considered[0]})
		if operator == "$type" {
			out = append(out, bson.E{Key: "consideredType", Value: TypeName(considered[0])})
		}
	default:
		out = append(out, bson.E{Key: "consideredValues", Value: considered})
	}
	return out
}

// rules is the order in which a server checks the keywords of a schema.
var rules = []string{
	"bsonType", "type", "maximum", "minimum", "maxLength", "minLength", "pattern", "minItems", "maxItems", "uniqueItems", "items", "properties",
	"additionalProperties", "required", "minProperties", "maxProperties", "allOf", "anyOf", "oneOf", "not", "enum",
}

func annotations(schema bson.D) (out bson.D) {
	for _, key := range []string{"title", "description"} {
		if v, has := value.Get(schema, key); has {
			out = append(out, bson.E{Key: key, Value: v})
		}
	}
	return out
}

// unmetRules describes the keywords of a schema that a value does not fulfil.
func unmetRules(schema bson.D, v any) bson.A {
	out := bson.A{}
	for _, keyword := range rules {
		arg, has := value.Get(schema, keyword)
		if !has || fulfils(bson.D{{Key: keyword, Value: arg}}, schema, v) {
			continue
		}
		out = append(out, unmetRule(keyword, arg, schema, v))
	}
	return out
}

// fulfils reports whether a value fulfils some keywords of a schema.
func fulfils(some, schema bson.D, v any) bool {
	for _, e := range some {
		p, err := keywords[e.Key](e.Value, schema)
		if err != nil || p == nil {
			continue
		}
		if ok, err := p(v); err == nil && !ok {
			return false
		}
	}
	return true
}

func unmetRule(keyword string, arg any, schema bson.D, v any) bson.D {
	out := bson.D{{Key: "operatorName", Value: keyword}}
	as := bson.D{{Key: keyword, Value: arg}}
	put := func(key string, v any) { out = append(out, bson.E{Key: key, Value: v}) }
	list, _ := v.(bson.A)
	doc := asDocument(v)
	switch keyword {
	case "properties":
		failed := bson.A{}
		for _, e := range asDocument(arg) {
			inner := asDocument(e.Value)
			if of, has := value.Get(doc, e.Key); has && !fulfils(inner, inner, of) {
				p := append(bson.D{{Key: "propertyName", Value: e.Key}}, annotations(inner)...)
				failed = append(failed, append(p, bson.E{Key: "details", Value: unmetRules(inner, of)}))
			}
		}
		put("propertiesNotSatisfied", failed)
		return out
	case "items":
		at := slices.IndexFunc(list, func(item any) bool { return !fulfils(asDocument(arg), asDocument(arg), item) })
		put("reason", "At least one item did not match the sub-schema")
		put("itemIndex", int32(at))
		put("details", unmetRules(asDocument(arg), list[at]))
		return out
	case "allOf", "anyOf", "oneOf":
		failed := bson.A{}
		for i, s := range arg.(bson.A) {
			if inner := asDocument(s); !fulfils(inner, inner, v) {
				failed = append(failed, bson.D{{Key: "index", Value: int32(i)}, {Key: "details", Value: unmetRules(inner, v)}})
			}
		}
		put("schemasNotSatisfied", failed)
		return out
	case "not":
		put("reason", "child expression matched")
		return out
	case "required":
		missing := bson.A{}
		for _, name := range arg.(bson.A) {
			key, _ := name.(string)
			if _, has := value.Get(doc, key); !has {
				missing = append(missing, name)
			}
		}
		put("specifiedAs", as)
		put("missingProperties", missing)
		return out
	case "additionalProperties":
		more, known := bson.A{}, asDocument(field(schema, "properties"))
		for _, e := range doc {
			if _, is := value.Get(known, e.Key); !is {
				more = append(more, e.Key)
			}
		}
		put("specifiedAs", as)
		put("additionalProperties", more)
		return out
	case "minimum", "maximum":
		exclusive := map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}[keyword]
		if open, has := value.Get(schema, exclusive); has {
			as = append(as, bson.E{Key: exclusive, Value: open})
		}
	}
	put("specifiedAs", as)
	put("reason", reason(keyword, false))
	if keyword == "minProperties" || keyword == "maxProperties" {
		put("numberOfProperties", int32(len(doc)))
		return out
	}
	put("consideredValue", v)
	switch keyword {
	case "bsonType", "type":
		put("consideredType", TypeName(v))
	case "minItems", "maxItems":
		put("numberOfItems", int32(len(list)))
	case "uniqueItems":
		for i, item := range list {
			if slices.ContainsFunc(list[:i], func(before any) bool { return value.Equal(before, item) }) {
				put("duplicatedValue", item)
				break
			}
		}
	}
	return out
}
