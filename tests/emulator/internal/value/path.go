package value

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Get reads one field of a document.
func Get(d bson.D, key string) (any, bool) {
	for i := range d {
		if d[i].Key == key {
			return d[i].Value, true
		}
	}
	return nil, false
}

// Set replaces or appends one field, keeping the order of the rest.
func Set(d bson.D, key string, v any) bson.D {
	for i := range d {
		if d[i].Key == key {
			d[i].Value = v
			return d
		}
	}
	return append(d, bson.E{Key: key, Value: v})
}

// Remove drops one field.
func Remove(d bson.D, key string) bson.D {
	for i := range d {
		if d[i].Key == key {
			return append(d[:i:i], d[i+1:]...)
		}
	}
	return d
}

// Clone copies documents and arrays all the way down; scalars are immutable.
func Clone(v any) any {
	switch t := v.(type) {
	case bson.D:
		return CloneDoc(t)
	case bson.A:
		out := make(bson.A, len(t))
		for i := range t {
			out[i] = Clone(t[i])
		}
		return out
	default:
		return v
	}
}

// CloneDoc is like Clone for documents.
func CloneDoc(d bson.D) bson.D {
	out := make(bson.D, len(d))
	for i := range d {
		out[i] = bson.E{Key: d[i].Key, Value: Clone(d[i].Value)}
	}
	return out
}

// Split cuts a dotted path.
func Split(path string) []string { return strings.Split(path, ".") }

// Index reads an array index; "01" is a field name and no index.
func Index(s string) (int, bool) {
	if s == "" || len(s) > 9 || (len(s) > 1 && s[0] == '0') {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && s[0] != '+'
}

// Walk calls yield for every value a path of the query language reaches: arrays on the way are
// entered, by index and element by element; the array at the end is yielded whole (matching its
// elements is the operator's business). It yields Missing where a document has no such field, and
// whether the last step was an index into an array. It stops when yield returns true.
func Walk(v any, path []string, yield func(v any, byIndex bool) bool) bool {
	return walk(v, path, false, yield)
}

func walk(v any, path []string, byIndex bool, yield func(v any, byIndex bool) bool) bool {
	if len(path) == 0 {
		return yield(v, byIndex)
	}
	switch t := v.(type) {
	case bson.D:
		child, ok := Get(t, path[0])
		if !ok {
			return yield(Missing{}, false)
		}
		return walk(child, path[1:], false, yield)
	case bson.A:
		if i, ok := Index(path[0]); ok && i < len(t) {
			if walk(t[i], path[1:], true, yield) {
				return true
			}
		}
		for _, e := range t {
			if d, ok := e.(bson.D); ok && walk(d, path, false, yield) {
				return true
			}
		}
		return false
	default:
		return yield(Missing{}, false)
	}
}

// Lookup follows a path through documents only, without entering arrays.
func Lookup(d bson.D, path string) (any, bool) {
	var v any = d
	for _, p := range Split(path) {
		doc, ok := v.(bson.D)
		if !ok {
			return nil, false
		}
		if v, ok = Get(doc, p); !ok {
			return nil, false
		}
	}
	return v, true
}

// RawField finds a top-level field of an encoded document without decoding the rest.
func RawField(raw bson.Raw, key string) (bson.RawValue, bool) {
	v, err := raw.LookupErr(key)
	return v, err == nil
}
